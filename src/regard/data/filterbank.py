"""Log-mel features of a recording, by kaldi-native-fbank.

Every 10 ms a window of 25 ms is taken; its mean is removed, y_t = x_t − 0.97 x_(t−1), Povey's window is applied, and

    f_m = log max(ε, Σ_k w_mk |DFT(y)_k|²)

for triangular filters w_m that are even on the mel scale, mel(f) = 1127 log(1 + f / 700) (Kaldi's `fbank`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from regard.data.sound import Clip, frame_count, resampled, samples_of

LOWEST = 20.0  # Hz


def log_mel(samples: NDArray[np.float32], rate: int, bins: int) -> NDArray[np.float32]:
    """Return the log-mel features (frames, bins) of samples from −1 to 1, up to half the rate."""
    import kaldi_native_fbank as knf

    options = knf.FbankOptions()
    options.frame_opts.dither = 0.0
    options.frame_opts.snip_edges = False
    options.frame_opts.samp_freq = float(rate)
    options.mel_opts.num_bins = bins
    options.mel_opts.low_freq = LOWEST
    options.mel_opts.high_freq = 0.0  # of the library: half the rate
    options.energy_floor = 0.0
    bank = knf.OnlineFbank(options)
    bank.accept_waveform(rate, np.ascontiguousarray(samples) * 32768)  # Kaldi's samples are 16-bit numbers
    bank.input_finished()
    if not bank.num_frames_ready:
        return np.empty((0, bins), np.float32)
    return np.stack([bank.get_frame(i) for i in range(bank.num_frames_ready)])


def features(clip: Clip, rate: int, bins: int) -> NDArray[np.float32]:
    """Return the features of a clip at this rate, one frame for each 10 ms of it."""
    samples, own = samples_of(clip)
    found = log_mel(resampled(samples, own, rate), rate, bins)
    count = frame_count(clip)
    if len(found) < count:  # resampling rounds the length
        last = found[-1:] if len(found) else np.full((1, bins), np.log(np.finfo(np.float32).eps), np.float32)
        found = np.concatenate((found, np.repeat(last, count - len(found), 0)))
    return found[:count]
