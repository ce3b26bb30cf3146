/*
 * phonograd's C ABI: train and evaluate a keyboard language model on the phone's own CPU.
 *
 * Contract
 *   - Handles are opaque; each is made by one function and freed by one other. NULL is refused, not dereferenced
 *     (freeing NULL does nothing).
 *   - Every function that can fail returns a pg_status: 0 or one of the codes below. No exception crosses this border.
 *   - pg_last_error() is the message of the last failure on the calling thread: one line that names the thing, what was
 *     expected, what was found and the next step. It stays valid until the next failure on that thread.
 *   - A handle is used by one thread at a time; different handles are independent. The engine runs its own threads.
 *   - Weights are mapped and must not change until their handle is closed: if the file is written to or truncated, the
 *     next call fails with PG_WEIGHTS (a new file under the same name is fine). So that the process survives until
 *     then, the first mapping installs a SIGBUS handler; it passes all other faults on to the previous handler.
 *   - Strings are UTF-8 paths or names, NUL-terminated. Buffers are little-endian, dense, row-major, and stay the
 *     caller's; shapes are given in the letters V (vocabulary), E (embedding), H (hidden), T (steps), B (minibatch).
 */
#ifndef PHONOGRAD_H
#define PHONOGRAD_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define PG_API __attribute__((visibility("default")))
#else
#define PG_API
#endif

/* Incremented by every change that breaks older callers. */
#define PG_ABI_VERSION 1

typedef int pg_status;
enum {
  PG_OK = 0,
  PG_BUG = 1,
  PG_USAGE = 2,
  PG_TEXT = 3,
  PG_VOCABULARY = 4,
  PG_ARTIFACTS = 5,
  PG_WEIGHTS = 6,
  PG_UPDATE = 7,
  PG_UNSUPPORTED = 10,
  PG_STORAGE = 11,
  PG_TRAINING = 12,
  PG_STATE = 17,
  PG_OUT_OF_MEMORY = 26
};

typedef struct pg_engine pg_engine;
typedef struct pg_graph pg_graph;
typedef struct pg_state pg_state;

typedef struct pg_options {
  int32_t threads;     /* at least 1 */
  int32_t pin_threads; /* 0 or 1: thread i works on the i-th fastest CPU this process may use */
  int32_t fuse;        /* 1; 0 runs every node by itself, for tests */
  int32_t precision;   /* 0 fp32, 1 bf16, 2 bf16 emulated in fp32 arithmetic */
  uint64_t seed;       /* of the dropout masks */
  const char* kernels; /* NULL: the best this CPU has; else a name from pg_cpu_info() */
} pg_options;

PG_API int32_t pg_abi_version(void);
PG_API const char* pg_last_error(void);
/* JSON: {"features": [...], "cores": n, "kernels": [names this CPU can run, best first], "bf16": "name" or null}. */
PG_API const char* pg_cpu_info(void);

/* Load an artifacts folder. weights: NULL for the folder's own weights, or a tensor file with the same shapes. */
PG_API pg_status pg_engine_open(const char* folder, const char* weights, const pg_options* options, pg_engine** engine);
/* The same with an output sample: step() trains the softmax over C candidates alone. candidates int64 [C]: vocabulary
   ids, rising; shifts float32 [C]: at least 0, added to their logits. FORMAT.md, "Output sample", has the rule that
   they are drawn by. Both are copied. step() still takes ids; one that is no candidate is refused with PG_TRAINING.
   pg_engine_logits() has all V words. PG_ARTIFACTS for a folder whose export had no output sample. */
PG_API pg_status pg_engine_open_sampled(const char* folder, const char* weights, const pg_options* options,
                                        const int64_t* candidates, const float* shifts, int64_t C, pg_engine** engine);
PG_API void pg_engine_close(pg_engine* engine);
/* Set the recurrent states to zero, at the start of a new text. */
PG_API pg_status pg_engine_reset(pg_engine* engine);
/* One step: tokens and targets int64 [T,B], T and B as exported; target -1 is ignored. *loss is the loss before
   the update. If it is not finite, it is returned and the weights do not change. */
PG_API pg_status pg_engine_step(pg_engine* engine, const int64_t* tokens, const int64_t* targets, float learning_rate,
                                float* loss);
/* Write the scores float32 [T*B,V] after tokens int64 [T,B], any T and B. Evaluation has its own recurrent states,
   which pg_engine_reset sets to zero. */
PG_API pg_status pg_engine_logits(pg_engine* engine, const int64_t* tokens, int64_t T, int64_t B, float* scores);
/* The trainable tensors, in the order of the manifest: count, then name, element count and a pointer into the engine
   (float32, read-only for the caller, valid until close, changed by step; with an output sample those of words are
   brought up to date by this call). */
PG_API int32_t pg_engine_parameters(const pg_engine* engine);
PG_API pg_status pg_engine_parameter(const pg_engine* engine, int32_t index, const char** name, int64_t* elements,
                                     const float** data);
/* The plan, for people to read; and the seconds of the last step by phase, as JSON. Valid until the next call on this
   engine. */
PG_API pg_status pg_engine_plan(pg_engine* engine, const char** text);
PG_API pg_status pg_engine_phases(pg_engine* engine, const char** json);

/*
 * Resumable training: a folder holds what an epoch has changed so far, and a killed process resumes from it with the
 * same bits. FORMAT.md, "Training state". The folder is locked from open to close. The engine must outlive the state.
 *
 * stream int64 [tokens]: the tokens to train on. The job is the stream, the learning rate, and the engine's model and
 * options; a state of another job is refused. restart: 0, or 1 to discard the saved state.
 */
PG_API pg_status pg_state_open(pg_engine* engine, const char* folder, const int64_t* stream, int64_t tokens,
                               double learning_rate, int32_t restart, pg_state** state);
/* Of an engine with an output sample: `drawn`, the words asked for, and the draw's seed are part of the job too. */
PG_API pg_status pg_state_open_sampled(pg_engine* engine, const char* folder, const int64_t* stream, int64_t tokens,
                                       double learning_rate, int32_t restart, int64_t drawn, uint64_t sample_seed,
                                       pg_state** state);
PG_API void pg_state_close(pg_state* state);
/* Restore the saved state into the engine, which must just have been reset. losses and step_seconds have room for
 * `capacity` numbers. *steps: the steps done, which is how many numbers were written; 0 if no state was saved. */
PG_API pg_status pg_state_resume(pg_state* state, double* losses, double* step_seconds, int64_t capacity,
                                 int64_t* steps);
/* Save the epoch's progress durably. If this fails, the state saved before is unchanged. */
PG_API pg_status pg_state_save(pg_state* state, const double* losses, const double* step_seconds, int64_t steps);
/* Remove the saved state, once the epoch's outputs are on disk. */
PG_API pg_status pg_state_discard(pg_state* state);

/*
 * Any graph of operators that the engine knows, its values accessed by name. For models other than language models (the
 * MLP of paper P) and for tests of single operators. optimizer: NULL, or optimizer_model.onnx to let run() update the
 * parameters. weights: NULL, or a tensor file; its tensors become the graph's inputs of the same names, as parameters.
 * With fuse = 0 every output of the graph can be read after run().
 */
PG_API pg_status pg_graph_open(const char* model, const char* optimizer, const char* weights, const pg_options* options,
                               pg_graph** graph);
PG_API void pg_graph_close(pg_graph* graph);
PG_API pg_status pg_graph_set(pg_graph* graph, const char* name, const void* data, size_t bytes);
PG_API pg_status pg_graph_run(pg_graph* graph, float learning_rate);
/* A pointer to an output's or a parameter's values, its bytes, and its shape (up to 8 dimensions). */
PG_API pg_status pg_graph_get(pg_graph* graph, const char* name, const void** data, size_t* bytes, int64_t* shape,
                              int32_t* rank);

/*
 * For benchmarks: run a kernel of a set (NULL: the best) on generated operands, once to warm up, then `repeats` times;
 * seconds [repeats]. Names: gemm_nn, gemm_nt (B given transposed), gemm_tn (A): C[M,N] += A[M,K] B[K,N]; gemm_rows:
 * C[M,N] = A[M,K] X[N,K]^T for few N; exp, sigmoid, tanh of N elements. May change between versions.
 */
PG_API pg_status pg_bench_kernel(const char* kernels, const char* name, int64_t M, int64_t N, int64_t K,
                                 int32_t threads, int32_t repeats, double* seconds);

#ifdef __cplusplus
}
#endif
#endif
