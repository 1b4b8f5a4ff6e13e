"""From settings to objects: what is misspelt is named, with what there is."""

import pytest

from fedclust.experiments import build
from fedclust.models import mlp

MODEL = mlp((1, 28, 28), 10, (8,))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"method": {"kind": "FedAvg", "fractoin": 1.0}},
            "method FedAvg has no option 'fractoin'; it has fraction",
        ),
        ({"method": {"kind": "FedAvgg"}}, "method 'FedAvgg' is not known"),
        ({"train": {"lr": 0.1, "batchh": 3}}, "train has no option 'batchh'; it has lr, "),
        (
            {"train": {"lr": 0.1, "privacy": {"kind": "UpdateNoise", "eps": 1}}},
            "no option 'eps'; it has",
        ),
        (
            {
                "method": {
                    "kind": "OCFL",
                    "pretrain": {"lr": 0.1},
                    "estimator": {"kind": "OPTICS", "x": 1},
                }
            },
            "estimator OPTICS has no option 'x'; it has min_samples",
        ),
    ],
)
def test_an_unknown_option_lists_the_options(settings, message):
    usual = {"method": {"kind": "FedAvg"}, "train": {"lr": 0.1}}
    with pytest.raises(ValueError) as error:
        build.method(usual | settings, MODEL)
    assert message in str(error.value)
    assert len(str(error.value)) <= 300
