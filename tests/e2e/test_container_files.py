"""Dockerfile, examples/compose.yaml and examples/kubernetes beside the schemas, the code and examples/watching."""

import json
from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from check_jsonschema.builtin_schemas import get_builtin_schema
from kubernetes_validate.utils import latest_version, validate

from phonograd.server_agg.app import OPERATIONS
from tests.cluster.image import ROOT, Image, build
from tests.support.command_line import Run, Workplace

EXAMPLES = ROOT / "examples"
INGRESS = EXAMPLES / "kubernetes/ingress.yaml"
KUBERNETES = sorted({*INGRESS.parent.glob("*.yaml")} - {INGRESS})
OPEN_PATHS = {one.path for one in OPERATIONS if one.access == "open"}


def documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text("utf-8")))


def of_kind(path: Path, *kinds: str) -> dict[str, Any]:
    (found,) = [one for one in documents(path) if one["kind"] in kinds]
    return found


def image() -> Image:
    return build((ROOT / "Dockerfile").read_text("utf-8"))


def compose() -> dict[str, Any]:
    (document,) = documents(EXAMPLES / "compose.yaml")
    return document


@dataclass(frozen=True)
class Server:
    """A server's command line, its port, and the folders that it may write in."""

    line: list[str]
    port: int
    places: set[str]
    config: str = ""


def servers() -> dict[str, Server]:
    made, service = image(), compose()["services"]["server"]
    ports = [int(one.split(":")[-1]) for one in service["ports"]]
    mounts = {one.split(":")[1] for one in service["volumes"] if not one.endswith(":ro")} | {*service["tmpfs"]}
    found = {
        "Dockerfile": Server([*made.cmd], int(made.expose), {made.volume, made.env["XDG_STATE_HOME"]}),
        "compose.yaml": Server(service["command"], ports[0], mounts, compose()["configs"]["server"]["content"]),
    }
    for path in KUBERNETES:
        (container,) = of_kind(path, "StatefulSet", "Deployment")["spec"]["template"]["spec"]["containers"]
        texts = [one["data"]["server.toml"] for one in documents(path) if one["kind"] == "ConfigMap"]
        mounts = {one["mountPath"] for one in container["volumeMounts"]} - {"/etc/phonograd"}
        port = container["ports"][0]["containerPort"]
        found[path.name] = Server(container["args"], port, mounts, *texts)
    return found


@pytest.mark.parametrize("name", ["Dockerfile", "compose.yaml", *(path.name for path in KUBERNETES)])
def test_a_server_starts_by_options_and_keys_that_exist(
    phono: Run, workplace: Workplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    started: list[Any] = []
    monkeypatch.setattr("phonograd.api.serving.serve", lambda *arguments: started.append(arguments))
    server, state = servers()[name], f"{image().volume}/state"
    (tmp_path / "server.toml").write_text(server.config.replace('"/artifacts', f'"{workplace.artifacts}'), "utf-8")
    local = {"=/artifacts": f"={workplace.artifacts}", "/etc/phonograd": str(tmp_path)}
    line = [str(workplace.artifacts) if word == "/artifacts" else word for word in server.line]
    for place, here in local.items():
        line = [word.replace(place, here) for word in line]
    done = phono(*line)
    assert done.code == 0, done.err
    ((_, found_state, settings, _),) = started
    assert (settings.host, settings.port, str(found_state)) == ("0.0.0.0", server.port, state)
    assert server.places == {image().volume, "/tmp"}
    assert (settings.ledger is None) == (settings.store is None) == (name in ("Dockerfile", "one-server.yaml"))


def test_probes_ask_paths_that_are_open_to_everyone() -> None:
    made = image()
    assert f"http://127.0.0.1:{made.expose}/livez" in made.healthcheck[-1]
    asked = {"startupProbe": "/livez", "livenessProbe": "/livez", "readinessProbe": "/healthz"}
    assert set(asked.values()) <= OPEN_PATHS
    for path in KUBERNETES:
        pod = of_kind(path, "StatefulSet", "Deployment")["spec"]["template"]
        (container,) = pod["spec"]["containers"]
        assert {name: container[name]["httpGet"]["path"] for name in asked} == asked
        service = of_kind(path, "Service")["spec"]
        assert service["selector"] == pod["metadata"]["labels"]
        named = {service["ports"][0]["targetPort"], *(container[name]["httpGet"]["port"] for name in asked)}
        assert named == {container["ports"][0]["name"]}
        assert pod["spec"]["securityContext"]["runAsUser"] == int(made.user) > 0


def test_an_ingress_leads_to_the_servers_which_believe_it() -> None:
    (rule,) = of_kind(INGRESS, "Ingress")["spec"]["rules"]
    target = rule["http"]["paths"][0]["backend"]["service"]
    for path in KUBERNETES:
        service = of_kind(path, "Service")
        assert target == {"name": service["metadata"]["name"], "port": {"name": service["spec"]["ports"][0]["name"]}}
        (container,) = of_kind(path, "StatefulSet", "Deployment")["spec"]["template"]["spec"]["containers"]
        assert ip_network({one["name"]: one["value"] for one in container["env"]}["FORWARDED_ALLOW_IPS"])


@pytest.mark.parametrize("path", [INGRESS, *KUBERNETES], ids=lambda path: path.name)
def test_kubernetes_takes_the_manifests(path: Path) -> None:
    for document in documents(path):
        validate(document, latest_version(), strict=True)


def test_compose_takes_the_file() -> None:
    jsonschema.validate(compose(), get_builtin_schema("vendor.compose-spec"))  # by the draft that it names


def test_what_watches_the_server_is_what_examples_watching_has() -> None:
    services, configs = compose()["services"], compose()["configs"]
    mounts = dict(one.split(":")[:2] for name in ("prometheus", "grafana") for one in services[name]["volumes"])
    assert {source: (EXAMPLES / source).is_file() for source in mounts if source.startswith("./watching/")} == {
        f"./watching/{name}": True for name in ("prometheus.yml", "rules.yml", "dashboard.json")
    }
    watching = yaml.safe_load((EXAMPLES / "watching/prometheus.yml").read_text("utf-8"))
    (job,) = watching["scrape_configs"]
    assert mounts["./prometheus.token"] == job["authorization"]["credentials_file"]
    assert mounts["./watching/rules.yml"] == f"/etc/prometheus/{watching['rule_files'][0]}"
    # Prometheus is in the server's network, so the example's target is the server, and Grafana finds it there.
    assert services["prometheus"]["network_mode"] == "service:server"
    assert job["static_configs"][0]["targets"] == [f"127.0.0.1:{image().expose}"]
    (source,) = yaml.safe_load(configs["datasource"]["content"])["datasources"]
    assert source["url"] == "http://server:9090"
    (provider,) = yaml.safe_load(configs["dashboards"]["content"])["providers"]
    assert mounts["./watching/dashboard.json"].startswith(provider["options"]["path"] + "/")
    json.loads((EXAMPLES / "watching/dashboard.json").read_text("utf-8"))
