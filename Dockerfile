# The server's image, without torch and compilers: docs/deployment.md ("Containers").
FROM debian:trixie-slim AS build
RUN apt-get update && apt-get install --yes --no-install-recommends python3-venv
COPY pyproject.toml hatch_build.py README.md LICENSE /src/
COPY docs /src/docs
COPY android_harness /src/android_harness
COPY bench /src/bench
COPY device_runtime /src/device_runtime
COPY export /src/export
COPY phonograd /src/phonograd
COPY server_agg /src/server_agg
# Private strategies need `dp` too: --build-arg EXTRAS=postgres,s3,dp
ARG EXTRAS=postgres,s3
# botocore describes all of AWS in 27 MB; a server needs S3, and what finds its credentials.
RUN python3 -m venv /opt/phonograd && /opt/phonograd/bin/pip install --no-cache-dir --no-compile "/src[$EXTRAS]" \
    && find /opt/phonograd/lib/python3*/site-packages/botocore/data -mindepth 1 -maxdepth 1 -type d \
        ! -name s3 ! -name 'sso*' ! -name sts -exec rm -r {} + \
    && /opt/phonograd/bin/pip uninstall --yes pip && find /opt/phonograd -name __pycache__ -prune -exec rm -r {} +

FROM debian:trixie-slim
RUN apt-get update && apt-get install --yes --no-install-recommends python3 && rm -rf /var/lib/apt/lists/* /var/cache/apt \
    && useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin phonograd \
    && install --directory /artifacts \
    && install --directory --owner phonograd --group phonograd --mode 700 /var/lib/phonograd
COPY --from=build /opt/phonograd /opt/phonograd
# /tmp is the one folder beside the state's that must be writable: for the operator's token, and bytecode, which would be 44 MB here.
ENV PATH=/opt/phonograd/bin:/usr/bin:/bin XDG_STATE_HOME=/tmp PYTHONPYCACHEPREFIX=/tmp/bytecode
USER 10001
VOLUME /var/lib/phonograd
EXPOSE 8080
# /healthz is for load balancers: a restart helps against nothing that it reports.
HEALTHCHECK --start-period=5m --timeout=10s \
    CMD ["python3", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8080/livez', timeout=9)"]
ENTRYPOINT ["phonograd"]
CMD ["serve", "--artifacts", "/artifacts", "--state", "/var/lib/phonograd/state", "--set", "server.host=0.0.0.0", "--log-format", "json"]
