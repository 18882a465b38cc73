"""Writes `config/grafana-dashboard.json`, the Grafana dashboard for the daemon's metrics.

    python packaging/dashboard.py            # write it
    python packaging/dashboard.py --check    # exit status 1 unless the file is what this program makes

Panels, queries and links are built with Grafana's own typed builders, so that a field that Grafana does not have cannot
be written. Import the file in Grafana (10.4 or later) and choose the Prometheus that scrapes the agents.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, table, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as common_models
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

FILE = Path(__file__).resolve().parents[1] / "config" / "grafana-dashboard.json"
# The alerts link to this address; see the annotation `dashboard` in prometheus-rules.yml.
UID = "logagent-hosts"
SOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
HOST = 'instance=~"$instance"'
DIR = f'{HOST}, log_dir=~"$log_dir"'

# Name, query, unit, description, thresholds (value, color) from the first value on; the first one is the base.
Steps = Sequence[tuple[float | None, str]]
GOOD_IF_ZERO: Steps = ((None, "green"), (1, "red"))
NEUTRAL: Steps = ((None, "blue"),)

STATS: list[tuple[str, str, str, str, Steps]] = [
    ("Hosts", f"count(logagent_build_info{{{HOST}}})", "none", "Hosts whose agent answers.", NEUTRAL),
    (
        "Hosts not watching",
        f"count(time() - logagent_health_last_round_timestamp_seconds{{{HOST}}} > 300) or vector(0)",
        "none",
        "Hosts without a round of probes for five minutes.",
        GOOD_IF_ZERO,
    ),
    (
        "Log dirs offline",
        f'sum(logagent_log_dir_state{{{DIR}, state="offline"}})',
        "none",
        "The disk failed, hangs, was unmounted, or the broker gave the log dir up.",
        GOOD_IF_ZERO,
    ),
    (
        "Log dirs full or read-only",
        f'sum(logagent_log_dir_state{{{DIR}, state=~"full|read-only"}})',
        "none",
        "Deleting still works on a full log dir, and frees space.",
        GOOD_IF_ZERO,
    ),
    (
        "Plans that need approval",
        f"sum(logagent_plan_needs_approval{{{HOST}}})",
        "none",
        "Plans over the blast radius: see them with `logagent cleanup` on that host.",
        ((None, "green"), (1, "orange")),
    ),
    (
        "Orphans",
        f"sum(logagent_orphan_bytes{{{DIR}}})",
        "bytes",
        "Bytes of the files in orphaned partition directories.",
        NEUTRAL,
    ),
    (
        "Bytes that no broker reports",
        f'sum(logagent_log_dir_bytes{{{DIR}, kind=~"stray|delete|other|open_removed|unexplained"}})',
        "bytes",
        "In -stray and -delete directories, other files, removed-but-open files, and unexplained.",
        NEUTRAL,
    ),
    (
        "Freed in 24 h",
        f"sum(increase(logagent_freed_bytes_total{{{HOST}}}[24h]))",
        "bytes",
        "Allocated bytes freed by removals.",
        NEUTRAL,
    ),
]

MOST_LINES = 20
"""A fleet has thousands of log dirs, and a picture of thousands of lines shows none."""


def largest(query: str) -> str:
    return f"topk({MOST_LINES}, {query})"


# Title, unit, description, [(legend, query)], stacked
SERIES: dict[str, list[tuple[str, str, str, list[tuple[str, str]], bool]]] = {
    "Log dirs": [
        (
            "Fullness",
            "percentunit",
            "Bytes in use over the size of the log dir's file system. The 20 largest.",
            [
                (
                    "{{instance}} {{log_dir}}",
                    largest(f"logagent_log_dir_used_bytes{{{DIR}}} / logagent_log_dir_size_bytes{{{DIR}}}"),
                )
            ],
            False,
        ),
        (
            "Bytes by what they belong to",
            "bytes",
            "Allocated bytes over all selected log dirs. The broker's tools know only current and future.",
            [("{{kind}}", f"sum by (kind) (logagent_log_dir_bytes{{{DIR}}})")],
            True,
        ),
        (
            "Bytes that can be freed",
            "bytes",
            "At most: what the last plan would remove now, and what is waiting for its retention (logagent rescue).",
            [("{{when}}", f"sum by (when) (logagent_log_dir_reclaimable_bytes{{{DIR}}})")],
            True,
        ),
        (
            "Probes",
            "s",
            "How long the last probe took: 4 KiB written, synced and read back. The 20 largest.",
            [("{{instance}} {{log_dir}}", largest(f"logagent_log_dir_probe_seconds{{{DIR}}}"))],
            False,
        ),
        (
            "Orphaned bytes by reason",
            "bytes",
            "Bytes of the files in directories with the verdict orphan.",
            [("{{reason}}", f"sum by (reason) (logagent_orphan_bytes{{{DIR}}})")],
            True,
        ),
    ],
    "Deletion": [
        (
            "Delete queue",
            "bytes",
            "Bytes in directories that are marked for deletion and still on disk. The 20 largest.",
            [("{{instance}} {{log_dir}}", largest(f"logagent_queue_bytes{{{DIR}}}"))],
            True,
        ),
        (
            "Age of the oldest marked directory",
            "s",
            "Far above file.delete.delay.ms: nothing is removing them. The 20 largest.",
            [
                (
                    "{{instance}} {{log_dir}}",
                    largest(f"time() - (logagent_queue_oldest_marked_timestamp_seconds{{{DIR}}} > 0)"),
                )
            ],
            False,
        ),
        (
            "Freed",
            "binBps",
            "Allocated bytes freed by removals, per second. The 20 largest.",
            [
                (
                    "{{instance}}",
                    largest(f"sum by (instance) (rate(logagent_freed_bytes_total{{{HOST}}}[$__rate_interval]))"),
                )
            ],
            True,
        ),
        (
            "Actions by outcome",
            "short",
            "Renames and removals carried out, by outcome.",
            [
                (
                    "{{action}} {{outcome}}",
                    f"sum by (action, outcome) (increase(logagent_actions_total{{{HOST}}}[$__rate_interval]))",
                )
            ],
            False,
        ),
        (
            "Refusals by guard",
            "short",
            "Items that the last cleanup cycle of each host refused.",
            [("{{guard}}", f"sum by (guard) (logagent_plan_refusals{{{HOST}}})")],
            True,
        ),
        (
            "Planned and waiting",
            "short",
            "Directories in the last cleanup plan of each host: due now, and not due yet.",
            [
                ("due", f"sum(logagent_plan_actions{{{HOST}}})"),
                ("waiting", f"sum(logagent_plan_waiting{{{HOST}}})"),
            ],
            False,
        ),
        (
            "Requested directories",
            "short",
            "Directories of these hosts in deletion requests of the fleet, by the last answer.",
            [("{{state}}", f"sum by (state) (logagent_requests_directories{{{HOST}}})")],
            True,
        ),
        (
            "Since requests were last read",
            "s",
            "The host that is furthest behind, of those that look for requests.",
            [("oldest", f"max(time() - logagent_requests_last_read_timestamp_seconds{{{HOST}}})")],
            False,
        ),
    ],
    "The agent": [
        (
            "Since the last successful cycle",
            "s",
            "Per kind of cycle, the host that is furthest behind.",
            [
                (
                    "{{cycle}}",
                    f"max by (cycle) (time() - logagent_cycle_last_success_timestamp_seconds{{{HOST}}})",
                )
            ],
            False,
        ),
        (
            "Duration of cycles",
            "s",
            "Mean per kind of cycle, over all hosts.",
            [
                (
                    "{{cycle}}",
                    f"sum by (cycle) (rate(logagent_cycle_seconds_sum{{{HOST}}}[$__rate_interval]))"
                    f" / sum by (cycle) (rate(logagent_cycle_seconds_count{{{HOST}}}[$__rate_interval]))",
                )
            ],
            False,
        ),
        (
            "Cycles that failed",
            "short",
            "Cycles that ended early, by error.",
            [
                (
                    "{{cycle}} {{error}}",
                    f"sum by (cycle, error) (increase(logagent_cycle_errors_total{{{HOST}}}[$__rate_interval]))",
                )
            ],
            False,
        ),
        (
            "Age of the assignments",
            "s",
            "Beyond assignments.max_age every verdict is unknown. The 20 largest.",
            [("{{instance}} {{source}}", largest(f"time() - logagent_assignments_timestamp_seconds{{{HOST}}}"))],
            False,
        ),
        (
            "Snapshots waiting to be published",
            "bytes",
            "In the spool of each host. The 20 largest.",
            [("{{instance}}", largest(f"logagent_publish_waiting_bytes{{{HOST}}}"))],
            False,
        ),
        (
            "Hosts that cannot publish, or whose clock is doubted",
            "short",
            "The last attempt to reach the fleet store failed; nothing is done that depends on an age.",
            [
                ("store not reached", f"sum(logagent_publish_failed{{{HOST}}})"),
                ("clock doubted", f"sum(logagent_clock_doubted{{{HOST}}})"),
            ],
            False,
        ),
        (
            "CPU",
            "percentunit",
            "Share of one core that the agent uses. The 20 largest.",
            [("{{instance}}", largest(f"rate(logagent_process_cpu_seconds_total{{{HOST}}}[$__rate_interval])"))],
            False,
        ),
        (
            "Memory",
            "bytes",
            "Resident memory of the agent. The 20 largest.",
            [("{{instance}}", largest(f"logagent_process_resident_memory_bytes{{{HOST}}}"))],
            False,
        ),
    ],
}

# Column, query, unit
COLUMNS: list[tuple[str, str, str]] = [
    ("State", f"max by (instance, log_dir, state) (logagent_log_dir_state{{{DIR}}} == 1)", "none"),
    (
        "Full",
        f"max by (instance, log_dir) (logagent_log_dir_used_bytes{{{DIR}}} / logagent_log_dir_size_bytes{{{DIR}}})",
        "percentunit",
    ),
    ("Free", f"max by (instance, log_dir) (logagent_log_dir_free_bytes{{{DIR}}})", "bytes"),
    ("Orphans", f"sum by (instance, log_dir) (logagent_orphan_bytes{{{DIR}}})", "bytes"),
    ("Stray", f'sum by (instance, log_dir) (logagent_log_dir_bytes{{{DIR}, kind="stray"}})', "bytes"),
    ("Marked", f'sum by (instance, log_dir) (logagent_log_dir_bytes{{{DIR}, kind="delete"}})', "bytes"),
]


SELECTED = re.compile(r"(?:rate|increase)\(\w+\{[^}]*\}\[[^\]]+\]\)|logagent_\w+\{[^}]*\}")


def in_cluster(expression: str) -> str:
    """Without the hosts of clusters that are not chosen. Only `logagent_kafka_info` has the cluster as a label; a host
    whose cluster is not known yet stays, as one to look at."""
    others = 'logagent_kafka_info{cluster_id!~"$cluster"}'
    return SELECTED.sub(lambda found: f"({found[0]} unless on (instance, job) {others})", expression)


def query(expression: str, legend: str, ref: str, *, instant: bool = False) -> prometheus.Dataquery:
    built = prometheus.Dataquery().expr(in_cluster(expression)).legend_format(legend).ref_id(ref).datasource(SOURCE)
    return built.instant().format(PromQueryFormat.TABLE) if instant else built.range()


def thresholds(steps: Steps) -> dashboard.ThresholdsConfig:
    return (
        dashboard.ThresholdsConfig()
        .mode(models.ThresholdsMode.ABSOLUTE)
        .steps([models.Threshold(value=value, color=color) for value, color in steps])
    )


def stat_panel(title: str, expression: str, unit: str, description: str, steps: Steps) -> stat.Panel:
    return (
        stat.Panel()
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .unit(unit)
        .thresholds(thresholds(steps))
        .color_mode(common_models.BigValueColorMode.VALUE)
        .graph_mode(common_models.BigValueGraphMode.NONE)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .with_target(query(expression, "", "A"))
        .span(3)
        .height(4)
    )


def series_panel(
    title: str, unit: str, description: str, queries: list[tuple[str, str]], stacked: bool
) -> timeseries.Panel:
    built = (
        timeseries.Panel()
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .unit(unit)
        .min(0)
        .fill_opacity(20 if stacked else 0)
        .legend(
            common.VizLegendOptions()
            .show_legend(True)
            .display_mode(common_models.LegendDisplayMode.LIST)
            .placement(common_models.LegendPlacement.BOTTOM)
        )
        .tooltip(common.VizTooltipOptions().mode(common_models.TooltipDisplayMode.MULTI))
        .span(12)
        .height(8)
    )
    if stacked:
        built = built.stacking(common.StackingConfig().mode(common_models.StackingMode.NORMAL))
    for number, (legend, expression) in enumerate(queries):
        built = built.with_target(query(expression, legend, chr(ord("A") + number)))
    return built


def log_dirs_panel() -> table.Panel:
    """One row a log dir, joined over its two labels."""
    built = (
        table.Panel()
        .title("Log dirs of every host")
        .description("Sort by a column; a host name opens that host only.")
        .datasource(SOURCE)
        .span(24)
        .height(10)
        .with_transformation(models.DataTransformerConfig(id_val="merge", options={}))
        .with_transformation(
            models.DataTransformerConfig(
                id_val="organize",
                options={
                    "excludeByName": {"Time": True, "Value #A": True},
                    "renameByName": {
                        "instance": "Host",
                        "log_dir": "Log dir",
                        "state": "State",
                        **{f"Value #{chr(ord('A') + n)}": name for n, (name, _, _) in enumerate(COLUMNS) if n},
                    },
                },
            )
        )
        .override_by_name(
            "Host",
            [
                models.DynamicConfigValue(
                    id_val="links",
                    value=[{"title": "This host only", "url": f"/d/{UID}?var-instance=${{__value.text}}"}],
                )
            ],
        )
    )
    for number, (name, expression, unit) in enumerate(COLUMNS):
        built = built.with_target(query(expression, "", chr(ord("A") + number), instant=True))
        if number:
            built = built.override_by_name(name, [models.DynamicConfigValue(id_val="unit", value=unit)])
    return built


def choice(name: str, label: str, metric: str, of: str = "") -> dashboard.QueryVariable:
    """A variable with the values that the label `of` (default: of its name) has in a metric."""
    return (
        dashboard.QueryVariable(name)
        .label(label)
        .query(f"label_values({metric}, {of or name})")
        .datasource(SOURCE)
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.NATURAL_ASC)
        .multi(True)
        .include_all(True)
        .all_value(".*")
    )


def build() -> str:
    """The whole dashboard as JSON."""
    built = (
        dashboard.Dashboard("Kafka log dirs (logagent)")
        .uid(UID)
        .description("Log dirs, orphans, the delete queue and what guards refused, on every host that runs logagent.")
        .tags(["kafka", "logagent"])
        .refresh("1m")
        .time("now-24h", "now")
        .readonly()
        .with_variable(dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
        .with_variable(choice("cluster", "Cluster", "logagent_kafka_info", "cluster_id"))
        .with_variable(choice("instance", "Host", 'logagent_kafka_info{cluster_id=~"$cluster"}'))
        .with_variable(choice("log_dir", "Log dir", f"logagent_log_dir_size_bytes{{{HOST}}}"))
        .with_row(dashboard.Row("At a glance"))
    )
    for title, expression, unit, description, steps in STATS:
        built = built.with_panel(stat_panel(title, expression, unit, description, steps))
    built = built.with_panel(log_dirs_panel())
    for row, panels in SERIES.items():
        built = built.with_row(dashboard.Row(row))
        for panel in panels:
            built = built.with_panel(series_panel(*panel))
    return JSONEncoder(sort_keys=True, indent=2).encode(built.build()) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description="Write config/grafana-dashboard.json.")
    parser.add_argument("--check", action="store_true", help="only say whether the file is up to date")
    made = build()
    if parser.parse_args().check:
        if FILE.read_text() != made:
            print(f"{FILE.name} is not what packaging/dashboard.py makes: run it", file=sys.stderr)
            return 1
        return 0
    FILE.write_text(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
