"""`python -m phonograd.android_harness.app`: build the APK, the AAR, or a Maven repository with the AAR."""

import dataclasses
import json
import sys
from pathlib import Path

import click

from phonograd.android_harness.app.aar import Aar, build_aar, size_table
from phonograd.android_harness.app.apk import build_apk
from phonograd.android_harness.app.maven import release_to_maven
from phonograd.android_harness.app.toolchain import find_tools
from phonograd.device_runtime.base.errors import PhonogradError

FILE = click.Path(path_type=Path, dir_okay=False)


@click.command()
@click.option("--out", type=FILE, default=Path("phonograd-demo.apk"), show_default=True, help="The APK.")
@click.option(
    "--aar", type=FILE, help="Build this Android library (.aar) for an app's Gradle build, in place of the APK."
)
@click.option(
    "--maven",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write the AAR, with its POM, sources and Javadoc, to this Maven repository, a folder, in place of the APK.",
)
@click.option("--binary", type=FILE, help="The phone binary, from build-phone. [default: this version's]")
@click.option("--sdk", type=click.Path(path_type=Path), help="An Android SDK. [default: ANDROID_HOME, else Debian's]")
@click.option("--d8", type=FILE, help="The dexer: d8 or dx. [default: the SDK's]")
@click.option("--android-jar", type=FILE, help="The API to compile against. [default: the SDK's newest]")
@click.option("--keystore", type=FILE, help="Sign with this debug key, made if missing. [default: a new one each time]")
def main(
    out: Path,
    aar: Path | None,
    maven: Path | None,
    binary: Path | None,
    sdk: Path | None,
    d8: Path | None,
    android_jar: Path | None,
    keystore: Path | None,
) -> None:
    """Build the APK that runs phonograd-phone as a job, from the Java classes and the phone binary; or the AAR."""
    if aar is not None and maven is not None:
        raise click.UsageError("--aar and --maven both given; give one")
    built: Aar
    try:
        tools = find_tools(sdk, d8, android_jar)
        click.echo("building; what is not compiled yet takes some minutes", err=True)
        if maven is not None:
            built = release_to_maven(maven, tools, binary)
        elif aar is not None:
            built = build_aar(aar, tools, binary)
        else:
            built = build_apk(out, tools, binary, keystore)
    except PhonogradError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)
    if maven or aar:
        click.echo(size_table(Path(built.path)), err=True)
    click.echo(json.dumps(dataclasses.asdict(built)))
    if maven:
        click.echo(f'next, in your app: maven {{ url = uri("{maven.resolve()}") }} (docs/android.md)', err=True)
    elif not aar:
        click.echo(f"next: adb install {out} (docs/android.md)", err=True)


if __name__ == "__main__":
    main()
