// As much of the C ABI as tests of the Python side ask for. Built by test_library.py.
#include <stdio.h>
#include <string.h>

#include "phonograd.h"

#ifndef ECHO_ABI_VERSION
#define ECHO_ABI_VERSION PG_ABI_VERSION
#endif

namespace {
thread_local char last[256] = "";
}

int32_t pg_abi_version(void) {
  return ECHO_ABI_VERSION;
}

const char* pg_last_error(void) {
  return last;
}

const char* pg_cpu_info(void) {
  return "{\"features\": [\"avx2\"], \"cores\": 2, \"kernels\": [\"avx2\", \"portable\"], \"bf16\": null}";
}

// A model "fail-N" fails with status N.
pg_status pg_graph_open(const char* model, const char*, const char*, const pg_options*, pg_graph**) {
  int status = 0;
  sscanf(strstr(model, "fail-"), "fail-%d", &status);
  snprintf(last, sizeof last, "%s: status %d expected", model, status);
  return status;
}
