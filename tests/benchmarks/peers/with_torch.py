"""The plain loop: one client after the other, torch.optim.SGD, a state dict averaged."""

import torch
from common import Work, clock, start
from torch.nn.functional import cross_entropy


def train(work: Work, net: torch.nn.Module, t: int, i: int) -> None:
    x, y = (data[i] for data in work.tensors)
    step = torch.optim.SGD(net.parameters(), lr=work.lr, momentum=work.momentum)
    for batch in torch.from_numpy(work.plan(t, i)):
        step.zero_grad()
        cross_entropy(net(x[batch]), y[batch]).backward()
        step.step()


def main() -> None:
    work = start()
    served, times = work.net(), [clock()]
    for t in range(work.rounds):
        total = [torch.zeros_like(w) for w in served.parameters()]
        for i in work.chosen[t].tolist():
            net = work.net([w.detach() for w in served.parameters()])
            train(work, net, t, i)
            for sum_, w in zip(total, net.parameters(), strict=True):
                sum_ += w.detach() / len(work.chosen[t])
        with torch.no_grad():
            for w, sum_ in zip(served.parameters(), total, strict=True):
                w.copy_(sum_)
        times.append(clock())
    work.report(times, work.accuracy(served), f"torch {torch.__version__}")


main()
