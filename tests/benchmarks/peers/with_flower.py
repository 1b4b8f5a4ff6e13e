"""Flower's simulation engine: clients in Ray actors, one per core. It draws the round's clients
itself.
"""

import os
import sys

os.environ |= {
    "FLWR_TELEMETRY_ENABLED": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "OMP_NUM_THREADS": "1",
}
os.environ["PYTHONPATH"] = os.path.dirname(os.path.abspath(__file__))  # for the actors

import flwr
import torch
from common import clock, load, start
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch.nn.functional import cross_entropy

PATHS = sys.argv[1:3]
client, server = ClientApp(), ServerApp()
done: dict = {"times": []}


@client.train()
def train(message: Message, context: Context) -> Message:
    work = load(*PATHS)
    torch.set_num_threads(1)
    net, i = work.net(), int(context.node_config["partition-id"])
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    x, y = (data[i] for data in work.tensors)
    step = torch.optim.SGD(net.parameters(), lr=work.lr, momentum=work.momentum)
    for batch in torch.from_numpy(work.plan(int(message.content["config"]["server-round"]), i)):
        step.zero_grad()
        cross_entropy(net(x[batch]), y[batch]).backward()
        step.step()
    sent = {
        "arrays": ArrayRecord(net.state_dict()),
        "metrics": MetricRecord({"num-examples": len(y)}),
    }
    return Message(content=RecordDict(sent), reply_to=message)


class Timed(FedAvg):
    def configure_train(self, *args, **kw):
        done["times"] = done["times"] or [clock()]
        return super().configure_train(*args, **kw)

    def aggregate_train(self, *args, **kw):
        result = super().aggregate_train(*args, **kw)
        done["times"].append(clock())
        return result


@server.main()
def main(grid: Grid, context: Context) -> None:
    work = load(*PATHS)
    strategy = Timed(fraction_train=work.chosen.shape[1] / len(work.x), fraction_evaluate=0.0)
    result = strategy.start(grid, ArrayRecord(work.net().state_dict()), num_rounds=work.rounds)
    done["arrays"] = result.arrays.to_torch_state_dict()


if __name__ == "__main__":
    work = start()
    init = {"num_cpus": len(os.sched_getaffinity(0)), "address": "local"}  # not somebody else's Ray
    try:
        backend = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": init}
        run_simulation(server, client, num_supernodes=len(work.x), backend_config=backend)
    except BaseException as error:
        print(
            f"{type(error.__cause__ or error).__name__}: {error.__cause__ or error}",
            file=sys.stderr,
            flush=True,
        )
        os._exit(1)  # its threads would wait for ever
    net = work.net()
    net.load_state_dict(done["arrays"])
    work.report(
        done["times"], work.accuracy(net), f"flwr {flwr.__version__}, torch {torch.__version__}"
    )
