"""A fake adb: an executable that runs shell scripts on this machine, and fails as the test wants.

What real adb and a phone make of the same is for the tests with the stand-in phone.
"""

import json
import os
import sys
from pathlib import Path

from phonograd.android_harness.adb.tool import AdbTool

SERIAL = "FAKE01"
LISTED = "device usb:1-2 product:bluejay model:Pixel_6a device:bluejay transport_id:3"

SCRIPT = r'''#!PYTHON -IS
import json, os, re, shutil, subprocess, sys, time
from pathlib import Path

here = Path(__file__).parent
rules = json.loads((here / "rules.json").read_text())
arguments = sys.argv[1:]
serial = None
if arguments[:1] in (["-s"], ["-t"]):
    serial, arguments = arguments[1], arguments[2:]
with (here / "calls.jsonl").open("a") as log:
    entry = {"serial": serial, "arguments": arguments, "pid": os.getpid(), "session": os.getsid(0)}
    log.write(json.dumps(entry) + "\n")

def end(rule):
    """What a rule says instead of the work: output, error with the last argument, exit code; or nothing for ever."""
    sys.stdout.write(rule.get("out", "")); sys.stdout.flush()
    sys.stderr.write(rule.get("err", "").replace("LAST", arguments[-1])); sys.stderr.flush()
    time.sleep(rule.get("hang", 0))
    sys.exit(rule.get("code", 0))

def said(name):
    """The rule for a command, if there is one; it is dropped when it has been met as often as it says."""
    rule = rules.get(name)
    if rule is None:
        return None
    if "times" in rule:
        rule["times"] -= 1
        if rule["times"] < 0:
            return None
        (here / "rules.json").write_text(json.dumps(rules))
    return rule

command = arguments[0]
sys.stderr.write(rules.get("noise", "")); sys.stderr.flush()
rule = said(command)
if rule is not None and "after" not in rule:
    end(rule)
if command == "version":
    print("Android Debug Bridge version 1.0.41\nVersion 36.0.0-fake\nInstalled as " + __file__)
elif command == "devices":
    print(rules.get("noise_out", "") + "List of devices attached")
    for name, rest in rules["phones"].items():
        name = name.partition("|")[0]
        print(f"{name:22} {rest}" if "-l" in arguments else f"{name}\t{rest.split()[0]}")
    print()
elif command == "shell":
    script = arguments[-1]
    answer = here / "answers" / str(serial)
    if (here / "answers").is_dir():  # in place of the script
        script = re.sub(r"\n\(\n.*\n\)\n", "\ncat '%s'\n" % answer, script, flags=re.DOTALL)
        if not answer.exists():
            sys.exit(0)
    stdin = subprocess.DEVNULL if "-n" in arguments else None
    if rule is not None:  # so many bytes of its output, then as the rule says
        done = subprocess.run(["sh", "-c", script], stdin=stdin, capture_output=True)
        sys.stdout.buffer.write(done.stdout[: rule["after"]]); sys.stdout.flush()
        end(rule)
    sys.stdout.write(rules.get("noise_out", "")); sys.stdout.flush()
    sys.exit(subprocess.run(["sh", "-c", script], stdin=stdin).returncode)
elif command == "pull":
    source = here / "phone" / arguments[1].replace("/", "_")
    if rule is not None:  # so many bytes of the file
        Path(arguments[2]).write_bytes(source.read_bytes()[: rule["after"]])
        end(rule)
    if not source.exists():
        sys.exit("adb: error: failed to stat remote object '%s': No such file or directory" % arguments[1])
    shutil.copyfile(source, arguments[2])
    print(arguments[1] + ": 1 file pulled, 0 skipped. 100.0 MB/s (1 bytes in 0.001s)")
'''


class FakeAdb:
    """The executable, in a folder of the test's; phones and rules can be changed between its calls."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.path = folder / "adb"
        (folder / "phone").mkdir(parents=True)
        self.path.write_text(SCRIPT.replace("PYTHON", sys.executable, 1))
        self.path.chmod(0o755)
        self.phones: dict[str, str] = {SERIAL: LISTED}  # what follows a | tells phones with one serial apart
        self.rules: dict[str, object] = {}
        self.write()

    @property
    def tool(self) -> AdbTool:
        return AdbTool(self.path, "36.0.0-fake", "PATH")

    def rule(self, **rules: object) -> None:
        """Replace what it does instead of its work: by command, or `noise` (stderr) and `noise_out` before it."""
        self.rules = rules
        self.write()

    def write(self) -> None:
        (self.folder / "rules.json").write_text(json.dumps({"phones": self.phones, **self.rules}))

    def answers(self, texts: dict[str, str]) -> None:
        """What the phones of these serials, or transports, answer to any script; others vanish."""
        folder = self.folder / "answers"
        folder.mkdir(exist_ok=True)
        for serial, text in texts.items():
            (folder / serial).write_text(text)

    def calls(self) -> list[dict[str, object]]:
        log = self.folder / "calls.jsonl"
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []

    def still_running(self) -> list[int]:
        """Processes of calls that have not ended."""
        running = []
        for entry in self.calls():
            pid = int(str(entry["pid"]))
            try:
                os.kill(pid, 0)
            except ProcessLookupError:
                continue
            running.append(pid)
        return running
