"""examples/watching as promtool and systemd-analyze see it (Debian: prometheus, systemd)."""

import json
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.support.watching_examples import FOLDER, panel_expressions, rules

pytestmark = pytest.mark.cluster


def output_of(*command: object, cwd: Path = FOLDER) -> str:
    """What a command says; fails with it."""
    done = subprocess.run([*map(str, command)], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_prometheus_takes_the_configuration_and_the_rules() -> None:
    output_of("promtool", "check", "config", "--syntax-only", "--lint-fatal", "prometheus.yml")
    assert f"{len(rules())} rules found" in output_of("promtool", "check", "rules", "--lint-fatal", "rules.yml")


def test_each_alert_fires_and_stays_silent_as_its_tests_say() -> None:
    output_of("promtool", "test", "rules", "rules_test.yml")
    tests = yaml.safe_load((FOLDER / "rules_test.yml").read_text("utf-8"))["tests"]
    cases = {(case["alertname"], bool(case["exp_alerts"])) for test in tests for case in test["alert_rule_test"]}
    assert cases == {(rule["alert"], fires) for rule in rules() for fires in (True, False)}


def test_prometheus_understands_the_dashboard(tmp_path: Path) -> None:
    plain = [text.replace("$__rate_interval", "5m") for text in panel_expressions()]
    records = [{"record": f"panel:{number}", "expr": text} for number, text in enumerate(plain)]
    (tmp_path / "panels.yml").write_text(json.dumps({"groups": [{"name": "panels", "rules": records}]}), "utf-8")
    output_of("promtool", "check", "rules", "panels.yml", cwd=tmp_path)


def test_the_unit_is_valid_and_hardened(tmp_path: Path) -> None:
    text, unit = (FOLDER / "phonograd.service").read_text("utf-8"), tmp_path / "phonograd.service"
    assert "=/opt/phonograd/bin/phonograd " in text
    assert {"NoNewPrivileges=yes", "ProtectSystem=strict", "DynamicUser=yes"} <= set(text.splitlines())
    unit.write_text(text.replace("=/opt/phonograd/bin/phonograd ", "=/bin/true ", 1), "utf-8")  # it must exist
    assert output_of("systemd-analyze", "verify", "--man=no", unit) == ""  # it only warns of an unknown key
    # 1.4 of 10 with systemd 252; a service of the network cannot be far below 1.
    output_of("systemd-analyze", "security", "--offline=true", "--threshold=20", unit)
