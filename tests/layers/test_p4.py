import torch

from regard.layers.p4 import P4Convolution, P4Lift, turned


def layers() -> tuple[P4Lift, P4Convolution]:
    torch.manual_seed(0)
    return P4Lift(2, 3).double(), P4Convolution(3, 4).double()


def test_turning_the_picture_turns_the_map_and_moves_its_orientations() -> None:
    lift, convolve = layers()
    x = torch.randn(2, 2, 6, 6, dtype=torch.float64)
    once = torch.rot90(x, 1, (-2, -1))
    assert lift(once).allclose(turned(lift(x)), atol=1e-12)
    assert convolve(lift(once)).allclose(turned(convolve(lift(x))), atol=1e-12)
    assert not lift(once).allclose(torch.rot90(lift(x), 1, (-2, -1)), atol=1e-3)  # places alone are not enough
    four = x
    for _ in range(4):
        four = torch.rot90(four, 1, (-2, -1))
    assert four.equal(x)


def test_moving_the_picture_moves_the_map() -> None:
    lift, convolve = layers()
    x = torch.randn(1, 2, 6, 6, dtype=torch.float64)
    moved = x.roll((2, 1), (-2, -1))
    assert convolve(lift(moved)).allclose(convolve(lift(x)).roll((2, 1), (-2, -1)), atol=1e-12)


def test_the_mean_over_all_is_invariant_and_an_ordinary_convolution_is_not() -> None:
    lift, convolve = layers()
    x = torch.randn(1, 2, 6, 6, dtype=torch.float64)
    once = torch.rot90(x, 1, (-2, -1))
    pooled = [convolve(lift(each)).relu().mean((-3, -2, -1)) for each in (x, once)]
    assert pooled[0].allclose(pooled[1], atol=1e-12)
    plain = torch.nn.Conv2d(2, 4, 3, padding=1, padding_mode="circular").double()
    other = [plain(each).relu().mean((-2, -1)) for each in (x, once)]
    assert not other[0].allclose(other[1], atol=1e-3)
