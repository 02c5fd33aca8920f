"""What `atoll sandbox top` shows of two looks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from atoll.cli.top import history_rows, screen
from atoll.wire.public import MetricsSample, MetricsView, ProcessUsage

AT = datetime(2026, 1, 1, tzinfo=UTC)


def look(after_s: float, cpu_s: float) -> MetricsView:
    return MetricsView(
        at=AT + timedelta(seconds=after_s),
        cpu_count=2,
        cpu_s=cpu_s,
        load=[],
        memory_total_bytes=2**30,
        memory_available_bytes=2**29,
        disk_total_bytes=10 * 2**30,
        disk_available_bytes=9 * 2**30,
        processes=3,
        threads=4,
        network_received_bytes=0,
        network_sent_bytes=0,
        oom_kills=0,
    )


def usage(pid: int, cpu_s: float) -> ProcessUsage:
    return ProcessUsage(
        pid=pid,
        parent=1,
        name="a",
        command=f"program-{pid}",
        state="R",
        uid=1000,
        cpu_s=cpu_s,
        memory_bytes=1,
        threads=1,
    )


def test_one_that_has_just_begun_counts_and_one_that_ended_did_too() -> None:
    """Process 7 is new, 5 was there, and another one used a second and is gone."""
    lines = screen("sb", look(0, 10), look(2, 13), {5: 4.0, 6: 3.0}, [usage(5, 4.5), usage(7, 1.5)], 20)
    assert lines[1].startswith("cpu 150% of 2 cores  memory 512MiB of 1GiB  disk 1GiB of 10GiB")
    assert [line.split()[2] for line in lines[-2:]] == ["75%", "25%"]
    assert "program-7" in lines[-2]


def test_history_shows_what_came_since_the_moment_before() -> None:
    """Counters that began anew, as after a pause, are not below zero."""
    counts = [(0, 1.0, None, 0, 0), (5, 6.0, None, 5 * 1024, 10 * 1024), (10, 1.0, 7, 0, 0)]
    samples = [
        MetricsSample(
            at=AT + timedelta(seconds=at_s),
            cpu_s=cpu_s,
            memory_bytes=2**20,
            disk_bytes=2**30,
            processes=processes,
            network_received_bytes=received,
            network_sent_bytes=sent,
        )
        for at_s, cpu_s, processes, received, sent in counts
    ]
    assert history_rows(samples) == [
        ("00:00:05", "100%", "1MiB", "1GiB", "-", "1KiB/s", "2KiB/s"),
        ("00:00:10", "0%", "1MiB", "1GiB", "7", "0B/s", "0B/s"),
    ]
