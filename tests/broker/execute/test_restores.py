"""Every record of a restored partition is there, on every replica as leader, after retention has run twice.

The default run takes one life; `tests/run --full` takes them all: 3.5.2, 3.9.1, 4.3.1 and 4.4.0 with one and three
brokers, each end clean or a kill, and with tails that are torn before they come back (24 partitions in each life with
three brokers, 12 with one; two thirds of that on 3.5.2, which sets nothing aside itself). The brokers are their own, as
they are stopped and killed.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest

from tests.broker.restores import PROPERTIES, End, Life, NodeInCluster, live
from tests.broker.rig.cluster import KafkaCluster
from tests.long_form import FULL

QUICK = [Life("4.4.0", 1, "kill", "clean")]
HOW: tuple[End, End] = ("clean", "kill")
ALL = [
    *(
        Life(version, nodes, first, second)
        for version in ("3.5.2", "3.9.1", "4.3.1", "4.4.0")
        for nodes in (1, 3)
        for first, second in product(HOW, HOW)
    ),
    *(
        Life(version, nodes, "clean", second, torn=True)
        for version in ("3.5.2", "3.9.1", "4.3.1", "4.4.0")
        for nodes in (1, 3)
        for second in HOW
    ),
]
LIVES = ALL if FULL else QUICK


@pytest.mark.parametrize("life", LIVES, ids=str)
def test_no_record_is_lost_on_the_way_back(kafka_cluster: Callable[..., KafkaCluster], life: Life) -> None:
    cluster = kafka_cluster(life.version, nodes=life.nodes, log_dirs=1, props=PROPERTIES)
    assert live(NodeInCluster(life, cluster)) == {}
