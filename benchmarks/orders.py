"""Training steps of a recurrent decoder that looks before each step (Bahdanau) against after it (Luong).

Both train on the same batches in one process and take turns: `python -m benchmarks.orders`. Beside them: an encoder
that reads forward only, the cells, and the order `after` without input feeding, whose steps run at once.
"""

import argparse
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks.measure import alternate, ratio, report
from tests.models.networks import Converter

from regard.models.recurrent import recurrent

CASES = {
    "after": {},
    "before": {"order": "before"},
    "after, forward only": {"both_ways": False},
    "after, not fed": {"feeding": False},
    **{f"after, {cell}": {"cell": cell} for cell in ("gru", "rnn", "forgetting")},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--width", type=int, default=192)
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--length", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=20)
    asked = parser.parse_args()
    torch.manual_seed(1)
    source, target = (torch.randint(4, 60, (asked.rows, asked.length)) for _ in "st")

    def trained(how: dict[str, object]) -> object:
        model = Converter(recurrent(width=asked.width, **how), 60, 60)
        optimiser = torch.optim.AdamW(model.parameters())

        def step() -> None:
            optimiser.zero_grad()
            model.logits(source, target).logsumexp(-1).sum().backward()
            optimiser.step()

        return step

    times = alternate({name: trained(how) for name, how in CASES.items()}, asked.repeats)
    report("orders", [{"decoder": name, **ratio(times, name, "after")} for name in CASES])


if __name__ == "__main__":
    main()
