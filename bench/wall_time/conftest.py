"""What benchmarks share: the options of `make bench`, and a model with random weights, made once and removed."""

import contextlib
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import pytest

from phonograd.android_harness.report.compare import parse_max_slowdown
from phonograd.bench.environment import this_environment
from phonograd.bench.measuring import in_fresh_process
from phonograd.bench.synthetic import random_artifacts, write_synthetic_updates
from phonograd.bench.wall_time.comparison import (
    SavedRun,
    load_run,
    ratios_of,
    require_apart,
    require_no_slower,
    require_replaceable,
    require_same_machine,
    require_same_set,
)
from phonograd.device_runtime.base.errors import PhonogradError
from phonograd.device_runtime.base.files import write_bytes
from phonograd.device_runtime.formats.manifest import WEIGHTS, Artifacts, TrainingConfig, open_artifacts
from phonograd.device_runtime.update.codecs import CODECS
from phonograd.export.presets import preset_named

TOKENS = 4000  # that an update says it was trained on
MAX_SLOWDOWN = "20%"
PLACE, SAVED, ALLOWED = pytest.StashKey[Path](), pytest.StashKey[SavedRun](), pytest.StashKey[float]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of `make bench`."""
    parser.addoption("--preset", default="popov-2x650", help="the model's shape")
    parser.addoption("--save", type=Path, help="keep this run in a file")
    parser.addoption("--compare", type=Path, help="fail if a benchmark is slower than in this saved run")
    parser.addoption("--max-slowdown", help=f"by how much it may be slower; {MAX_SLOWDOWN} if not given")


@contextlib.contextmanager
def _errors_end_it() -> Iterator[None]:
    try:
        yield
    except PhonogradError as error:
        pytest.exit(str(error).replace("`max_slowdown`", "MAX_SLOWDOWN"), error.exit_code)


def pytest_configure(config: pytest.Config) -> None:
    """Check what is asked before minutes of measuring, and have pytest-benchmark write the run, whole or not."""
    folder = tempfile.TemporaryDirectory()
    config.add_cleanup(folder.cleanup)
    config.stash[PLACE] = Path(folder.name)
    save, compare, slowdown = (config.getoption(name) for name in ("--save", "--compare", "--max-slowdown"))
    with _errors_end_it():
        config.stash[ALLOWED] = parse_max_slowdown(slowdown or MAX_SLOWDOWN)
        require_apart(save, compare, slowdown)
        if save is not None:
            require_replaceable(save)
        if compare is not None:
            config.stash[SAVED] = load_run(compare)
    if save is not None or compare is not None:
        config.option.benchmark_json = config.stash[PLACE] / "run.json"
    warnings.filterwarnings("ignore", "Not saving anything")  # a run that was refused says why itself


def pytest_benchmark_update_machine_info(machine_info: dict[str, object]) -> None:
    """Add what tells a machine from others: a CPU's name alone, as of a virtual machine, does not."""
    machine_info["environment"] = msgspec.to_builtins(this_environment())


def pytest_collection_finish(session: pytest.Session) -> None:
    """Refuse a saved run of other benchmarks, or of another machine, before minutes of measuring."""
    if saved := session.config.stash.get(SAVED, None):
        with _errors_end_it():
            require_same_machine(saved, this_environment())
            require_same_set(saved, (item.nodeid for item in session.items), "this run lacks")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Iterator[None]:
    """Keep this run, which pytest-benchmark has written and shown by then, if it is whole; and compare it."""
    yield
    config = session.config
    if session.exitstatus != pytest.ExitCode.OK or config.option.collectonly:
        return
    with _errors_end_it():
        if save := config.getoption("--save"):
            write_bytes(save, config.option.benchmark_json.read_bytes())
        if saved := config.stash.get(SAVED, None):
            now = load_run(config.option.benchmark_json)
            ratios = ratios_of(saved, now)
            for name, ratio in ratios.items():
                print(f"{ratio:6.2f} times as long as saved: {name}")  # noqa: T201
            for name in now.medians.keys() - ratios.keys():
                print(f"   not compared, the saved run lacks it: {name}")  # noqa: T201
            require_no_slower(ratios, config.stash[ALLOWED])


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Name each benchmark of a model by its shape."""
    if "artifacts" in metafunc.fixturenames:
        model, training = preset_named(metafunc.config.getoption("--preset")).model, TrainingConfig()
        shape = f"{model.layers}x{model.hidden}-V{model.vocabulary}-B{training.minibatch}-T{training.bptt}"
        metafunc.parametrize("artifacts", [model], ids=[shape], indirect=True, scope="session")


@pytest.fixture(scope="session")
def place(request: pytest.FixtureRequest) -> Path:
    """A folder for large files, removed at the end of the run."""
    return request.config.stash[PLACE]


@pytest.fixture(scope="session")
def artifacts(request: pytest.FixtureRequest, place: Path) -> Artifacts:
    """A model of the asked shape."""
    return open_artifacts(random_artifacts(place / "artifacts", request.param))


@pytest.fixture(scope="session")
def updates(artifacts: Artifacts, place: Path) -> Mapping[str, Path]:
    """One phone's update in each codec."""
    paths: dict[str, Path] = {codec: place / codec for codec in CODECS}
    in_fresh_process(write_synthetic_updates, artifacts.path(WEIGHTS), paths, 0, TOKENS)
    return paths
