"""What holds for every test."""

from hypothesis import HealthCheck, settings

from tests.rig.fixtures import rig_fleet

__all__ = ["rig_fleet"]

# A busy machine must not fail a property: only what it finds may.
settings.register_profile(
    "gpumon", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("gpumon")
