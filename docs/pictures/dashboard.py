"""Makes dashboard.png: rounds of twelve simulated phones and a server on this machine, and its dashboard in Chromium.

Run it from the checkout's root, with the texts of `phonograd corpus fetch` and the artifacts of a small model (for the
picture: an LSTM of 2x200 and 10,000 words, after 400 steps of `phonograd pretrain`):

    python -m docs.pictures.dashboard artifacts corpus
"""

import shutil
import sys
import tempfile
from pathlib import Path

import phonograd
from docs.pictures.screenshot import screenshot
from phonograd.device_runtime.client.server_client import report_quality
from phonograd.device_runtime.formats.manifest import WEIGHTS

PHONES, ROUNDS = 12, 8
CODECS = ("rows-f32", "delta-int8", "rot-q4")
WIDTH, HEIGHT = 1120, 1570  # the top of the page, with the charts


def main(artifacts: Path, corpus: Path, folder: Path) -> None:
    """Run the rounds. Each phone has its own messages; every model is evaluated on other messages of the same users."""
    messages = [line for text in sorted(corpus.glob("users/*.txt")) for line in text.read_text("utf-8").splitlines()]
    rules = phonograd.RoundRules(clients_per_round=PHONES)
    settings = phonograd.ServerSettings(port=0, rules=rules)
    with phonograd.start_server(artifacts, folder / "state", settings) as server:
        for number in range(ROUNDS + 1):
            evaluate(server, artifacts, corpus / "users-test.txt", folder)
            for phone in range(PHONES if number < ROUNDS else PHONES // 2):  # the last round stays open
                take_part(server.url, artifacts, f"phone{phone + 1:02}", messages[phone::PHONES], folder)
        screenshot(Path(__file__).with_name("dashboard.png"), WIDTH, HEIGHT, server.admin_url, f"{server.url}/")


def take_part(server: str, artifacts: Path, phone: str, text: list[str], folder: Path) -> None:
    """Fetch the open round's model, train on `text`, upload the update."""
    model, update, codec = folder / phone, folder / "update", CODECS[int(phone[-2:]) % len(CODECS)]
    pull(server, artifacts, model, phone)
    number = phonograd.current_round(server).round
    settings = phonograd.TrainSettings(weights=model, round_number=number, phone=phone, codec=codec)
    phonograd.train(artifacts, text, settings, update=update)
    phonograd.upload(server, update, phone)


def evaluate(server: phonograd.RunningServer, artifacts: Path, text: Path, folder: Path) -> None:
    """Report the current model's perplexity to the server."""
    model = folder / "evaluator"
    sha256 = pull(server.url, artifacts, model, model.name)
    quality = phonograd.evaluate(artifacts, text, weights=model)
    report_quality(server.admin, sha256, "perplexity", quality.perplexity)
    report_quality(server.admin, sha256, "perplexity with unknown words", quality.perplexity_with_unknown)


def pull(server: str, artifacts: Path, model: Path, phone: str) -> str:
    """Bring a phone's own copy of the model up to date; the first one came with the app. Returns its hash."""
    if not model.exists():
        shutil.copy(artifacts / WEIGHTS, model)
    return phonograd.pull(server, model, phone=phone).sha256


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        main(Path(sys.argv[1]), Path(sys.argv[2]), Path(scratch))
