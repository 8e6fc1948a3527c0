"""Stands for `aie.utils.trace`. Traces are not simulated; results are the same without."""

from simulator.installation import unknown_name


def _nothing(*_arguments: object, **_options: object) -> None:
    """Records nothing."""


_NAMES = ["configure_packet_tracing_aie2", "configure_packet_tracing_flow", "gen_trace_done_aie2"]
globals().update(dict.fromkeys(_NAMES, _nothing))

__getattr__ = unknown_name(__name__, _NAMES)
