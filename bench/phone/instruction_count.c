/* A plugin of qemu-user: counts the instructions that a program executes. It writes their number to a file at each
 * write to standard output, before it, and at the exit, a line each.
 *
 *     qemu-aarch64 -plugin instruction_count.so,out=FILE PROGRAM ...
 *
 * Exact for one thread; a translation block that faults half-way counts as whole. Debian ships no qemu-plugin.h, so the
 * few declarations needed stand here; these callbacks exist in every version of the interface, so that
 * PLUGIN_VERSION need only be one that this qemu accepts. WRITE and WRITEV are the program's system calls.
 */
#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef uint64_t qemu_plugin_id_t;
struct qemu_plugin_tb;
enum qemu_plugin_cb_flags { QEMU_PLUGIN_CB_NO_REGS };

size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb* tb);
void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t id,
                                           void (*callback)(qemu_plugin_id_t, struct qemu_plugin_tb*));
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb* tb, void (*callback)(unsigned int, void*),
                                          enum qemu_plugin_cb_flags flags, void* data);
typedef uint64_t word;
void qemu_plugin_register_vcpu_syscall_cb(qemu_plugin_id_t id,
                                          void (*callback)(qemu_plugin_id_t, unsigned int, int64_t call, word first,
                                                           word, word, word, word, word, word, word));
void qemu_plugin_register_atexit_cb(qemu_plugin_id_t id, void (*callback)(qemu_plugin_id_t, void*), void* data);

__attribute__((visibility("default"))) int qemu_plugin_version = PLUGIN_VERSION;

static uint64_t executed;
static FILE* out;

static void on_execution(unsigned int cpu, void* data) {
  (void)cpu;
  executed += (uint64_t)(uintptr_t)data;
}

static void on_translation(qemu_plugin_id_t id, struct qemu_plugin_tb* tb) {
  (void)id;
  void* instructions = (void*)(uintptr_t)qemu_plugin_tb_n_insns(tb);
  qemu_plugin_register_vcpu_tb_exec_cb(tb, on_execution, QEMU_PLUGIN_CB_NO_REGS, instructions);
}

static void on_call(qemu_plugin_id_t id, unsigned int cpu, int64_t call, word first, word a2, word a3, word a4, word a5,
                    word a6, word a7, word a8) {
  (void)id, (void)cpu, (void)a2, (void)a3, (void)a4, (void)a5, (void)a6, (void)a7, (void)a8;
  if ((call == WRITE || call == WRITEV) && first == 1) fprintf(out, "%" PRIu64 "\n", executed);
}

static void at_exit(qemu_plugin_id_t id, void* data) {
  (void)id;
  (void)data;
  fprintf(out, "%" PRIu64 "\n", executed);
  fclose(out);
}

__attribute__((visibility("default"))) int qemu_plugin_install(qemu_plugin_id_t id, const void* info, int argc,
                                                               char** argv) {
  (void)info;
  if (argc != 1 || strncmp(argv[0], "out=", 4) != 0) return 1;
  out = fopen(argv[0] + 4, "w");
  if (out == NULL) return 1;
  qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
  qemu_plugin_register_vcpu_syscall_cb(id, on_call);
  qemu_plugin_register_atexit_cb(id, at_exit, NULL);
  return 0;
}
