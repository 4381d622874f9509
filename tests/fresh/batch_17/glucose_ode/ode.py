"""An adaptive Runge-Kutta solver of Dormand and Prince that autograd goes through."""

import torch

C = (0.0, 1 / 5, 3 / 10, 4 / 5, 8 / 9, 1.0, 1.0)
A = (
    (),
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
)
ERROR = (71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40)


def combined(state, dt, weights, slopes):
    for weight, slope in zip(weights, slopes):
        if weight:
            state = torch.add(state, slope, alpha=dt * weight)
    return state


def odeint(field, state, times, rtol=1e-7, atol=1e-9, dt=0.1):
    """States at the given times, of shape (time, *state)."""
    out, now = [state], times[0]
    first = field(now, state)
    for end in times[1:]:
        while end - now > 1e-9:
            step = min(dt, end - now)
            slopes = [first]
            for c, row in zip(C[1:], A[1:]):
                ahead = combined(state, step, row, slopes)
                slopes.append(field(now + c * step, ahead))
            with torch.no_grad():
                error = combined(torch.zeros_like(state), step, ERROR, slopes)
                scale = atol + rtol * torch.maximum(state.abs(), ahead.abs())
                ratio = (error / scale).pow(2).mean().sqrt().item()
            if ratio <= 1 or step < 1e-3:
                now, state, first = now + step, ahead, slopes[-1]
            dt = max(step * min(5.0, max(0.2, 0.9 * max(ratio, 1e-6) ** -0.2)), 1e-3)
        out.append(state)
    return torch.stack(out)
