"""CPU time of one pass against length, and the steps that wait for each other: `python -m benchmarks.lengths`.

An RNN takes n steps one after the other, each a few matrix products; the forgetting recurrence ⌈log₂ n⌉ rounds; a
convolution and attention one step for each layer, attention with n² scores. Processor time of one thread is reported,
which other programs on the machine do not change much.
"""

import argparse
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks.measure import report

from regard import pictures
from regard.attention import Context
from regard.models.convolution import convolution
from regard.models.encoder import encoder
from regard.models.lstm import lstm

WIDTH = 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--repeats", type=int, default=5)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    lengths = (32, 64, 128, 256, 512, 1024, 2048)
    networks = {
        "rnn": lstm(layers=1, width=WIDTH, cell="rnn", dropout=0.0)[1],
        "lstm": lstm(layers=1, width=WIDTH, dropout=0.0)[1],
        "forgetting": lstm(layers=1, width=WIDTH, cell="forgetting", dropout=0.0)[1],
        "convolution": convolution(layers=1, width=WIDTH, kernel=3, length=4, dropout=0.0, position="none")[1],
        "attention": encoder(layers=1, width=WIDTH, hidden=WIDTH, heads=4, length=4, dropout=0.0)[1],
    }
    found: dict[str, list[float]] = {name: [] for name in networks}
    for length in lengths:
        x = Context(torch.randn(1, length, WIDTH))
        for name, network in networks.items():
            spent = []
            for _ in range(asked.repeats):
                start = time.process_time()
                with torch.no_grad():
                    network.eval()(x)
                spent.append(time.process_time() - start)
            found[name].append(1e6 * min(spent) / length)
    rows = [
        {"network": name, **{str(n): value for n, value in zip(lengths, v, strict=True)}} for name, v in found.items()
    ]
    report("lengths", rows)
    if asked.picture:
        labels = ("length", "processor time, µs for each element")
        pictures.save(pictures.curves(lengths, found, *labels, title="One pass, one thread, width 64"), asked.picture)


if __name__ == "__main__":
    main()
