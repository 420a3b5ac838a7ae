// A plugin of QEMU's: prints how many instructions a program ran. What it takes of QEMU's
// interface is declared here, so that it needs no header of it.
#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef uint64_t qemu_plugin_id_t;
struct qemu_plugin_tb;
enum { kInlineAdd = 0 };

void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t id,
                                           void (*translated)(qemu_plugin_id_t,
                                                              struct qemu_plugin_tb*));
void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb* tb, int operation,
                                              void* number, uint64_t by);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb* tb);
void qemu_plugin_register_atexit_cb(qemu_plugin_id_t id, void (*ended)(qemu_plugin_id_t, void*),
                                    void* data);

int qemu_plugin_version = 1;

static uint64_t instructions;  // of one thread

static void OnTranslated(qemu_plugin_id_t id, struct qemu_plugin_tb* tb) {
  qemu_plugin_register_vcpu_tb_exec_inline(tb, kInlineAdd, &instructions,
                                           qemu_plugin_tb_n_insns(tb));
}

static void OnEnd(qemu_plugin_id_t id, void* data) {
  fprintf(stderr, "instructions: %" PRIu64 "\n", instructions);
}

int qemu_plugin_install(qemu_plugin_id_t id, const void* info, int argc, char** argv) {
  qemu_plugin_register_vcpu_tb_trans_cb(id, OnTranslated);
  qemu_plugin_register_atexit_cb(id, OnEnd, NULL);
  return 0;
}
