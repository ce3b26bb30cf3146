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
 *     pg_round_cancel() alone may be called by any thread, and by a signal handler.
 *   - Weights are mapped and must not change until their handle is closed: if the file is written to or truncated, the
 *     next call fails with PG_WEIGHTS (a new file under the same name is fine). So that the process survives until
 *     then, the first mapping installs a SIGBUS handler; it passes all other faults on to the previous handler.
 *   - Lack of memory or file descriptors is PG_OUT_OF_MEMORY, of disk space PG_STORAGE, wherever it strikes. Handles
 *     stay valid (reset an engine before you use it again), and files that were there before are unchanged. Only memory
 *     that Linux promised and cannot provide when a page is first written has no status: its killer ends a process.
 *   - Strings are UTF-8 paths or names, NUL-terminated. Buffers are little-endian, dense, row-major, and stay the
 *     caller's; shapes are given in the letters V (vocabulary), E (embedding), H (hidden), T (steps), B (minibatch).
 *   - A struct that begins with `size` may get more fields at its end. The caller sets size to its sizeof. In options,
 *     zero or NULL is every field's default: set the whole struct to zero first. A library that knows fewer fields
 *     takes the options if the bytes that it does not know are zero, else it refuses them with PG_USAGE; in a struct
 *     that it fills in, it sets these bytes to zero.
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
/* Of phonograd, of which this header is. */
#define PG_VERSION "0.1.0"

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
  PG_OUT_OF_MEMORY = 26,
  PG_TOOK_PART = 29
};

typedef struct pg_engine pg_engine;
typedef struct pg_graph pg_graph;
typedef struct pg_tokenizer pg_tokenizer;
typedef struct pg_round pg_round;

typedef struct pg_options {
  size_t size;         /* sizeof(pg_options) */
  int32_t threads;     /* 1 to 256; 0: 2 */
  int32_t pin_threads; /* 1: thread i works on the i-th fastest CPU this process may use */
  int32_t unfused;     /* 1: runs every node by itself, for tests */
  int32_t precision;   /* 0 fp32, 1 bf16, 2 bf16 emulated in fp32 arithmetic */
  uint64_t seed;       /* of the dropout masks */
  const char* kernels; /* NULL: the best this CPU has; else a name from pg_cpu_info() */
  /* Of engines: an output sample. pg_engine_step() trains the softmax over these C words alone; any other
     token or target is refused with PG_TRAINING. pg_tokenizer_sample() draws a sample. Both arrays are copied. */
  const int64_t* candidates; /* [C] vocabulary ids, rising */
  const float* shifts;       /* [C] at least 0, added to their logits */
  int64_t C;                 /* 0: the softmax is over all V words */
  int32_t folder_descriptor; /* of engines: of the artifacts folder, above 0, in place of its path; duplicated */
  /* Of engines with the loss LwF: the artifacts of the teacher that they were exported for, whose vocabulary begins
     with this one's; candidates are of its words. NULL: the teacher is the model that training starts from. */
  const char* teacher;
} pg_options;

PG_API int32_t pg_abi_version(void);
/* PG_VERSION of the library's header. */
PG_API const char* pg_version(void);
PG_API const char* pg_last_error(void);
/* JSON: {"features": [...], "cores": n, "kernels": [names this CPU can run, best first], "bf16": "name" or null}. */
PG_API const char* pg_cpu_info(void);

/* Which precision, as in pg_options, trains faster on this CPU with these options' threads and kernels: takes about
   50 ms. gflops [2]: of a product in fp32, and in bf16, 0 if the CPU has no instructions for it. */
PG_API pg_status pg_faster_precision(const pg_options* options, double* gflops, int32_t* precision);

/* Load an artifacts folder. weights: NULL for the folder's own weights, or a tensor file with the same shapes.
   PG_ARTIFACTS for an output sample of a folder whose export had none. */
PG_API pg_status pg_engine_open(const char* folder, const char* weights, const pg_options* options, pg_engine** engine);
PG_API void pg_engine_close(pg_engine* engine);

/* What a caller needs to size its buffers, and what runs. */
typedef struct pg_model {
  size_t size;             /* sizeof(pg_model) */
  int64_t V, E, H, layers; /* of the language model */
  int64_t T, B;            /* of a training window */
  int64_t output_words;    /* of the softmax that is trained: V, or C of an output sample */
  int64_t parameters;      /* trainable tensors */
  int64_t parameter_bytes; /* of all of them, float32 */
  const char* kernels;     /* valid until the handle is closed */
  int32_t precision;       /* as in pg_options */
  int32_t threads;         /* that run */
} pg_model;

PG_API pg_status pg_engine_model(const pg_engine* engine, pg_model* model);

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

/* What an update tells a server of the training it is from. */
typedef struct pg_update_options {
  size_t size;             /* sizeof(pg_update_options) */
  const char* base_sha256; /* of the weights' file that the engine was opened with: 64 lower-case hexadecimal digits */
  const char* codec;       /* NULL: "rows-f32" */
  uint64_t round;          /* the server's number of the round */
  uint64_t tokens;         /* trained on */
  uint64_t seed;           /* of the rehearsal draw, and of codecs that draw */
  int64_t steps;           /* 1: a single step with the gradient of the whole text; 0: one step a window */
  const char* masked;      /* settings of a masked round: a grid update is written, to be masked; NULL: an update */
} pg_update_options;

typedef struct pg_written {
  size_t size;     /* sizeof(pg_written) */
  int64_t nbytes;  /* of the file */
  char sha256[65]; /* of its bytes: 64 hexadecimal digits and a NUL */
} pg_written;

/* The plan, for people to read; and the seconds of the last step by phase, as JSON. Valid until its next call. */
PG_API pg_status pg_engine_plan(pg_engine* engine, const char** text);
PG_API pg_status pg_engine_phases(pg_engine* engine, const char** json);

/* A text in UTF-8, one message a line: the path of a file, or `length` bytes. Neither: no text. */
typedef struct pg_text {
  const char* path;
  const char* bytes;
  size_t length;
} pg_text;

/*
 * Text as a phone reads it. FORMAT.md has the rules. What a function returns through a pointer is the tokenizer's, and
 * valid until the next call with it. A file that is no text is refused with PG_TEXT.
 */

/* words: bytes of a vocabulary's file, or NULL for functions that need none; name: what messages call it, or NULL. */
PG_API pg_status pg_tokenizer_open(const pg_text* words, const char* name, pg_tokenizer** tokenizer);
PG_API void pg_tokenizer_close(pg_tokenizer* tokenizer);
/* The messages of a text: its lines with a token, each ended by a line feed. */
PG_API pg_status pg_tokenizer_messages(pg_tokenizer* tokenizer, const pg_text* text, const char** bytes,
                                       size_t* length);
/* Its tokens: a space between them, a line feed at a message's end. */
PG_API pg_status pg_tokenizer_tokens(pg_tokenizer* tokenizer, const pg_text* text, const char** bytes, size_t* length);

/* The words in the middle of sentences as they are written, such as McDonald, laid out as the tokens are; messages
   without any are left out. */
PG_API pg_status pg_tokenizer_forms(pg_tokenizer* tokenizer, const pg_text* text, const char** bytes, size_t* length);

/* What a phone trains on. */
typedef struct pg_stream {
  size_t size;        /* sizeof(pg_stream) */
  const int64_t* ids; /* [tokens] */
  int64_t tokens, user_tokens, general_tokens;
  double user_unknown_share, general_unknown_share; /* of words that the vocabulary does not have */
  double user_invalid_share;                        /* of bytes that are part of no UTF-8 character */
} pg_stream;

/* A user's text mixed with so much of `general`, drawn by the seed, that the user's share of the tokens is user_share.
   NULL for `general`: the user's text alone, in its order. PG_TEXT if `general` is too short. */
PG_API pg_status pg_tokenizer_mix(pg_tokenizer* tokenizer, const pg_text* user, const pg_text* general,
                                  double user_share, uint64_t seed, pg_stream* stream);
/* The counts [V] of the vocabulary's words. */
PG_API pg_status pg_tokenizer_counts(pg_tokenizer* tokenizer, const int64_t** counts);
/* The output sample of a stream [tokens], with about `drawn` words beside its own: see pg_options. counts: [V]. */
PG_API pg_status pg_tokenizer_sample(pg_tokenizer* tokenizer, const int64_t* stream, int64_t tokens,
                                     const int64_t* counts, int64_t V, int64_t drawn, uint64_t seed,
                                     const int64_t** candidates, const float** shifts, int64_t* C);
/* All training windows of a stream [tokens]: *count windows of inputs [T,B] and of targets [T,B], -1 for padding. */
PG_API pg_status pg_tokenizer_windows(pg_tokenizer* tokenizer, const int64_t* stream, int64_t tokens, int64_t T,
                                      int64_t B, const int64_t** inputs, const int64_t** targets, int64_t* count);

/* A text to evaluate, and the model: an engine, or a caller's function. */
typedef struct pg_evaluation_options {
  size_t size; /* sizeof(pg_evaluation_options) */
  pg_text text;
  int32_t kss;       /* 1: measure keystroke savings too */
  int64_t T, B;      /* of a window: as exported, for the figures that others measure */
  pg_engine* engine; /* its states are reset; or `scores` */
  /* Write the scores float32 [T*B,V] after tokens [T,B], with states that carry over from call to call. Not 0 stops. */
  int32_t (*scores)(void* context, const int64_t* tokens, int64_t T, int64_t B, float* scores);
  /* Called after each window; not 0 stops. NULL: never. */
  int32_t (*progress)(void* context, int64_t tokens, int64_t of_tokens);
  void* context;
} pg_evaluation_options;

typedef struct pg_evaluation {
  size_t size;                                       /* sizeof(pg_evaluation) */
  int64_t tokens, unknown_tokens, words, characters; /* words: tokens but <eos>; characters: 0 without kss */
  double perplexity, perplexity_error;               /* without unknown words; its standard error */
  double perplexity_with_unknown, perplexity_with_unknown_error; /* <unk> by its own probability */
  double top1, top1_error;                                       /* words that are the first suggestion */
  double top1_with_unknown, top1_with_unknown_error;             /* that have the highest score, <unk>'s included */
  double kss, kss_error;                                         /* 0 unless asked for */
  double kss_without_marks, kss_without_marks_error;             /* of a keyboard that suggests words alone */
  int32_t finished;                                              /* 1; 0 if it was stopped */
} pg_evaluation;

/* Evaluate a text. PG_TRAINING if scores are not finite. */
PG_API pg_status pg_tokenizer_evaluate(pg_tokenizer* tokenizer, const pg_evaluation_options* options,
                                       pg_evaluation* evaluation);

/*
 * A whole round on the phone: a user's text mixed with general text, an epoch over both, and the update for the server.
 * It is what the command `phonograd-phone train` does, with the same bits.
 *
 *   pg_round_open -> pg_round_train -> pg_round_report -> pg_round_discard_state -> pg_round_close
 *
 * A round trains once. To resume one that was cancelled or killed, open a round with the same options again.
 */

typedef struct pg_round_options {
  size_t size;           /* sizeof(pg_round_options) */
  const char* folder;    /* the artifacts; or folder_descriptor, below */
  const char* weights;   /* tensor file to start from; NULL: the folder's own weights */
  pg_text user;          /* required, or `stream` */
  pg_text rehearsal;     /* general text that is mixed in; none: the user's alone */
  double user_share;     /* of the tokens, with a rehearsal text; 0: 0.5 */
  double learning_rate;  /* 0: the artifacts' */
  double duty;           /* share of the time that steps take; below 1 there are rests between them; 0: 1 */
  int64_t epochs;        /* 0: 1 */
  int64_t output_sample; /* words drawn beside the text's own, for the softmax to be trained over; 0: over all V */
  uint64_t round;        /* the server's number of the round; 0: 1 */
  const char* phone;     /* the phone's name at the server; the seed follows from model, round and name */
  const uint64_t* seed;  /* in place of a name. NULL and no name: the saved state's, else random */
  /* Of the output sample; nobody else may learn it. NULL: the saved state's, else random. */
  const uint64_t* sample_seed;
  const char* out;           /* path to write the trained weights to; NULL: not written */
  const char* update;        /* path to write the update to; or update_descriptor, below; neither: not written */
  const char* codec;         /* of the update; NULL: "rows-f32" */
  const char* state;         /* folder for what a later round resumes from; NULL: nothing is saved */
  int64_t save_every;        /* the most steps between saves, which 5 seconds end too; 0: 5 */
  const char* kernels;       /* as in pg_options */
  int32_t threads;           /* 1 to 256, at most one a core runs; 0: 2 */
  int32_t pin_threads;       /* as in pg_options */
  int32_t precision;         /* as in pg_options */
  int32_t restart;           /* 1: discard the saved state */
  int32_t folder_descriptor; /* of the artifacts folder, above 0; duplicated */
  int32_t update_descriptor; /* of a regular file open for writing, above 0, whose content is replaced; must stay open
                                until pg_round_train returns. After a failure the file may hold a part. */
  int64_t steps;             /* 1: a single step with the gradient of the whole text (FedSGD); 0: one step a window */
  double max_unknown;    /* largest share of the user's words that the vocabulary may lack, for an update to be made:
                            beyond it, pg_round_open refuses the text with PG_TEXT; 0: 0.5 */
  const int64_t* stream; /* in place of `user`: token ids [stream_tokens] to train on; copied */
  int64_t stream_tokens;
  const char* weights_sha256;     /* of `weights`, if the caller knows it; NULL: it is hashed where it is needed */
  int32_t (*stop)(void* context); /* asked between steps and during rests, on the thread that trains: not 0 cancels */
  void* stop_context;
  const char* masked;      /* settings of a masked round: the update is a grid update, to be masked; NULL: `codec`'s */
  const char* run;         /* `run` of GET /v1/round, where it has one: a round of dp-ftrl, between which phones rest */
  const char* run_history; /* with it: path of the file of the rounds that this phone took part in, which is made or
                              continued before an update is. PG_TOOK_PART if the phone must rest: from pg_round_open */
  const char* teacher;     /* as in pg_options; excludes `state` */
} pg_round_options;

/* Of one step that was taken. */
typedef struct pg_progress {
  size_t size;    /* set by the library */
  int64_t step;   /* from 1 */
  int64_t steps;  /* of all epochs */
  int64_t tokens; /* that this step predicted */
  int64_t saved;  /* steps that the saved state holds */
  double loss;    /* nats a token, before the update */
  double seconds; /* of this step */
} pg_progress;

/* Called after each step, on the thread that called pg_round_train. It may call pg_round_cancel and no other function
   of this round; it must return. `progress` is valid during the call. */
typedef void (*pg_on_progress)(void* context, const pg_progress* progress);

/* Check all options, read and mix the texts, and load the model. Nothing is written but the folders that outputs are to
   be in, and the folder `state`, which is locked until the round is closed: PG_STATE if another process or round has
   it. An output that is one of the inputs or the other output is refused with PG_USAGE, one that would replace
   something other than a file with PG_STORAGE. */
PG_API pg_status pg_round_open(const pg_round_options* options, pg_round** round);
PG_API pg_status pg_round_model(const pg_round* round, pg_model* model);
/* JSON: what is trained on, how, and `steps_done`, which is 0 until pg_round_train returns. Valid until the next call
 * of this function, or until the round is closed. */
PG_API pg_status pg_round_job(pg_round* round, const char** json);
/* Train from where the saved state is; then write what the options ask for. on_progress may be NULL. *finished: 1; or 0
   if it was cancelled, and then nothing is written but the state. */
PG_API pg_status pg_round_train(pg_round* round, pg_on_progress on_progress, void* context, int32_t* finished);
/* Let pg_round_train return after the step in progress, with the state saved; if it has not begun, before its first
   step. From any thread, while the round is open. */
PG_API pg_status pg_round_cancel(pg_round* round);
/* JSON, once the round is finished: the `report` of phonograd-phone. Valid until the round is closed. */
PG_API pg_status pg_round_report(const pg_round* round, const char** json);
/* Remove the saved state of a finished round; PG_USAGE before that, and from the callback. Call it once the report is
   kept: if the process is killed before, a round with the same options resumes from the last saved step and writes the
   same files. The state of a round that is given up goes with the option `restart` of the next one. */
PG_API pg_status pg_round_discard_state(pg_round* round);
PG_API void pg_round_close(pg_round* round);

/*
 * Prediction for a keyboard: what may come next, after what was written so far. Weights are mapped read-only, and a
 * word costs one step of the network. A predictor neither needs nor hinders an engine.
 *
 * Text is UTF-8, split into words as texts to train on are (FORMAT.md, "Text"). options: fp32; `unfused`, `seed` and
 * an output sample are not used.
 */
typedef struct pg_predictor pg_predictor;

/* What a keyboard's shift key asks of the suggestions. Whatever it asks, capitals that were typed stay. */
enum {
  PG_SHIFT_BY_PLACE = 0, /* a capital at a sentence's start, else the word's usual form */
  PG_SHIFT_NONE = 1,     /* the usual form everywhere */
  PG_SHIFT_FIRST = 2,
  PG_SHIFT_ALL = 3
};

/* What a keyboard wants suggested. Zeros, but for the size, are the defaults. */
typedef struct pg_suggest_options {
  size_t size;      /* sizeof(pg_suggest_options) */
  int32_t shift;    /* PG_SHIFT_... */
  int32_t emoji;    /* 1: emoji too; else words alone, never marks */
  int32_t slips;    /* 1: also words whose beginning is one slip away: a neighbouring key, two letters swapped, one
                       missing, one doubled. From two letters on */
  double slip_cost; /* nats that a slip takes from the logarithm of the probability; 0: 6 */
  const char* neighbours; /* keys side by side, in pairs: "qw we qa"; NULL: those of QWERTY, "": none */
} pg_suggest_options;

typedef struct pg_suggestion {
  const char* word;   /* as it is written, NUL-terminated; valid until the next pg_predictor_suggest, or until close */
  int64_t id;         /* its number in the vocabulary; -1: only the user has it */
  double probability; /* among all words */
} pg_suggestion;

/* Open a folder's model at the start of a text. weights: NULL for the folder's prediction weights if it has them, else
   its weights; or a file of either kind, such as another round's. With prediction weights, suggestions and scores are
   the same bits on every CPU. */
PG_API pg_status pg_predictor_open(const char* folder, const char* weights, const pg_options* options,
                                   pg_predictor** predictor);
PG_API void pg_predictor_close(pg_predictor* predictor);
/* Return to the start of a text. */
PG_API pg_status pg_predictor_reset(pg_predictor* predictor);
/* Continue the text: whole words, in one call or in several; a line feed ends a message. */
PG_API pg_status pg_predictor_feed(pg_predictor* predictor, const char* text);
/* The most probable next words that begin with `prefix`, the letters typed of the word so far ("" for none): best
   first, at most `capacity`. options: NULL for the defaults. *count: how many. The first call after feed computes the
   scores of all words; later ones, as further letters are typed, only look them up. PG_TRAINING if scores are not
   finite. */
PG_API pg_status pg_predictor_suggest(pg_predictor* predictor, const char* prefix, const pg_suggest_options* options,
                                      int32_t capacity, pg_suggestion* suggestions, int32_t* count);
/* Never suggest these words, a line each, whoever has them and in any case; in place of the words of the last call. ""
   or NULL: none. PG_USAGE for a line with more than a word. */
PG_API pg_status pg_predictor_block(pg_predictor* predictor, const char* words);
/* How many characters of `word` are typed before it is one of three suggestions; all if it never is. marks: 1 for
   keystroke savings as papers count them, where marks and emoji are suggested too; 0: as pg_predictor_suggest does. */
PG_API pg_status pg_predictor_keystrokes(pg_predictor* predictor, const char* word, int32_t marks, int64_t* typed);
/* Write the logarithms of the probabilities that these words [count], at most 64, are next, for a keyboard's own
   decoder: of the first token of a candidate that has several; -inf for words that neither the model nor the user
   knows. */
PG_API pg_status pg_predictor_scores(pg_predictor* predictor, const char* const* words, int32_t count, double* scores);
/* Write the logits float32 [V] of the model's next word by id; their softmax is its probabilities. */
PG_API pg_status pg_predictor_logits(pg_predictor* predictor, float* logits);
/* Where the text stands, to return to it later (after other text, or a correction): *bytes bytes at *state, valid until
   the next call on this predictor. It says much about the text: keep it on the phone. */
PG_API pg_status pg_predictor_state(pg_predictor* predictor, const void** state, size_t* bytes);
/* Continue from a state of a predictor of the same model. PG_STATE for any other bytes. */
PG_API pg_status pg_predictor_restore(pg_predictor* predictor, const void* state, size_t bytes);
/*
 * The user's own words: what they wrote, how often, and after which words, mixed into a predictor's suggestions by
 * shares that follow what they write. They stay in one file on the phone: nothing that trains or makes updates opens
 * it. FORMAT.md, "Personal words". With prediction weights, they are the same bits on every CPU. Several
 * processes may have the file: saving merges what each did. A handle serves one predictor, on its thread.
 */
typedef struct pg_personal pg_personal;

/* path: the file, which need not exist; NULL: none, for words that are not saved. PG_STATE for a damaged one. */
PG_API pg_status pg_personal_open(const char* path, pg_personal** personal);
/* Does not save. A predictor that uses the words keeps them until it is closed. */
PG_API void pg_personal_close(pg_personal* personal);
/* Write the file, atomically, readable only by its owner, with what other processes saved meanwhile, which the handle
   then has too. PG_STATE if it was damaged meanwhile. */
PG_API pg_status pg_personal_save(pg_personal* personal);
/* Delete a word, in any case of its letters, and what followed it; it may be learned again. *deleted: 1 if it was. */
PG_API pg_status pg_personal_delete(pg_personal* personal, const char* word, int32_t* deleted);
/* Delete a word and never learn it again. PG_USAGE for more than 4,096 words. */
PG_API pg_status pg_personal_veto(pg_personal* personal, const char* word);
/* Take a veto back: the word is learned when it is written again. *allowed: 1 if there was a veto. */
PG_API pg_status pg_personal_allow(pg_personal* personal, const char* word, int32_t* allowed);
/* Delete everything, vetoes too. The file has it until the next save; then it is also deleted what other processes
   learned and did not save. */
PG_API pg_status pg_personal_forget(pg_personal* personal);
/* JSON: {"words": [{"word": text, "count": n}, ...], the most frequent first, "vetoed": [text, ...], "bytes": of the
   file}. Valid until the next call with this handle. */
PG_API pg_status pg_personal_list(pg_personal* personal, const char** json);
/* Mix the user's words into this predictor's suggestions; NULL: no longer. */
PG_API pg_status pg_predictor_personal(pg_predictor* predictor, pg_personal* personal);
/* Continue the text as pg_predictor_feed does, and learn it: whole words that the user wrote. Feed what must not be
   learned, such as what fields without personalised learning hold. Pieces with a digit or an @ are learned the third
   time. Every word costs the scores of all words. */
PG_API pg_status pg_predictor_learn(pg_predictor* predictor, const char* text);

/* Write a model's prediction weights, in int8, to the file `out`, atomically: a quarter of the model's size, and less
   than half of the time. folder: the artifacts that it must fit, or NULL. weights: NULL for the folder's own, or a
   tensor file such as a new round's model. */
PG_API pg_status pg_quantize(const char* folder, const char* weights, const char* out);
/* Write the model of the tensor file `weights` without its adapters, added to its matrices, to the file `out`,
   atomically. PG_WEIGHTS for a model without adapters. */
PG_API pg_status pg_merge(const char* weights, const char* out);

/*
 * Updates as files: what a phone sends, and what a server reads. FORMAT.md, "Updates".
 *
 * A model's weights, open for reading: what updates are made against. Any threads may use it at once; it must outlive
 * the pg_tiles that read it.
 */
typedef struct pg_weights pg_weights;
/* descriptor: an open file, of which `path` is the name in messages, and which the caller may close; -1: that at
   `path`. PG_WEIGHTS if it is no model of float32 tensors. */
PG_API pg_status pg_weights_open(const char* path, int32_t descriptor, pg_weights** weights);
PG_API void pg_weights_close(pg_weights* weights);

/* Write the update of trained weights against `base` to `path`, atomically. tensors: a pointer to the float32 values of
   each of the base's tensors, in its order and with its shapes; NULL for frozen ones. PG_WEIGHTS for a weight that is
   not finite or a base that was changed, PG_UPDATE for an unknown codec or a number above 18 digits. */
PG_API pg_status pg_update_write(const pg_weights* base, const float* const* tensors, const pg_update_options* options,
                                 const char* path, pg_written* written);

/* An update, or a link, open for reading. */
typedef struct pg_update pg_update;

typedef struct pg_update_facts {
  size_t size;               /* sizeof(pg_update_facts) */
  const char* base_sha256;   /* as in pg_update_options; the strings are valid until the handle is closed */
  const char* codec;         /* as in pg_update_options */
  const char* result_sha256; /* of a link: the model that it leads to; else NULL */
  uint64_t round;            /* as in pg_update_options, like the next three */
  uint64_t tokens;
  uint64_t seed;
  int64_t steps;
  int64_t nbytes; /* of it in the file */
} pg_update_facts;

/* Open the update that is the file at `path`, or the one that begins at byte `start` where several follow each other;
   -1: the file is one update. Reads it once, to check its checksum. PG_UPDATE if it is damaged or no update. */
PG_API pg_status pg_update_open(const char* path, int64_t start, pg_update** update);
PG_API void pg_update_close(pg_update* update);
PG_API pg_status pg_update_about(const pg_update* update, pg_update_facts* facts);
/* Check the update's parts against the model that it was made from, decode it and find every weight finite. The caller
   compares base_sha256. PG_UPDATE if it does not fit. */
PG_API pg_status pg_update_check(const pg_update* update, const pg_weights* base);

/* The trained weights of one tensor, decoded piece by piece. A handle each for several tensors or updates may be used
   in turn; update, base and onto must stay open. A frozen tensor has none. onto: NULL, or another model of the same
   tensors on which the update is to stand: onto + (trained - base), in double, rounded to float. PG_UPDATE for parts
   that do not fit, PG_WEIGHTS for such a model that does not. */
typedef struct pg_tiles pg_tiles;
#define PG_TILE 262144
PG_API pg_status pg_tiles_open(const pg_update* update, const pg_weights* base, const pg_weights* onto,
                               const char* tensor, pg_tiles** tiles);
PG_API void pg_tiles_close(pg_tiles* tiles);
/* The next weights: *count runs of neighbouring elements, rising, each at most PG_TILE long; runs [count][2] has where
   each begins in the tensor, seen as one dimension, and its length, and is valid until the next call; `values` has the
   weights of all runs, one after the other. capacity: of `values`, at least PG_TILE, or all elements of the tensor.
   *count 0: there are no more. Elements in no run did not move. */
PG_API pg_status pg_tiles_next(pg_tiles* tiles, float* values, int64_t capacity, const int64_t** runs, int64_t* count);

/* An update as a server takes it: decoded, checked, measured and added to sums. base and onto: as of pg_tiles_open; a
   delta is the weight less that of the model that the update stands on, in double. held: an update of at most so many
   weights is decoded once and kept, 8 bytes a weight. One thread at a time; several handles may read one update. */
typedef struct pg_decoded pg_decoded;
PG_API pg_status pg_decoded_open(const pg_update* update, const pg_weights* base, const pg_weights* onto, int64_t held,
                                 pg_decoded** decoded);
PG_API void pg_decoded_close(pg_decoded* decoded);
/* norms [tensors][3], in the model's order: the largest |delta|, the sum of all, the root of the sum of their squares.
   The same bits on every machine. PG_WEIGHTS for a delta that is not finite, PG_UPDATE for parts that disagree. */
PG_API pg_status pg_decoded_measure(pg_decoded* decoded, double* norms);
/* sums[tensor][element] += weight * (delta * steps_per_unit * scales[tensor] as an integer: towards zero; or, with
   scales NULL, delta * steps_per_unit to the nearest, ties to even). The caller keeps every |sum| below 2^62 by the
   norms. Errors as of measuring; some of it is then added. */
PG_API pg_status pg_decoded_add(pg_decoded* decoded, double steps_per_unit, int64_t weight, const double* scales,
                                int64_t* const* sums);
/* Both in one pass, without scales, which reads each delta while it is in the cache: measures, and adds if every
   |delta| is below `limit`, at most 2^62 / steps_per_unit. Sums may wrap around meanwhile; those that are not added to
   are left as they were. Errors as of measuring; and PG_STORAGE, with the sums of no use, for an update that changed.
 */
PG_API pg_status pg_decoded_take(pg_decoded* decoded, double steps_per_unit, int64_t weight, double limit,
                                 int64_t* const* sums, double* norms);

/*
 * Links, which lead phones from one model to the next. FORMAT.md, "Links".
 */
typedef struct pg_link_options {
  size_t size;                /* sizeof(pg_link_options) */
  const char* base_sha256;    /* of the base's file */
  const char* codec;          /* "rows-f32" leads to `model`; "top-rows" to a model near it, which is written too */
  uint64_t round;             /* that made the model */
  uint64_t seed;              /* by FORMAT.md, "Seeds", with * for the phone's name */
  const char* model_sha256;   /* rows-f32: of the model's file */
  const pg_weights* residual; /* top-rows: what earlier links left out, added to the model; NULL: nothing */
  int64_t rows;               /* top-rows: sent of all matrices together, at most */
  int32_t bits;               /* top-rows: a weight of them; 1, 2 or 4 */
  const char* result;         /* top-rows: path to write the model to that the link leads to */
} pg_link_options;

/* Write the link from `base` to `model` to `path`, atomically. The metadata of the model are the result's.
   result_written may be NULL with rows-f32. PG_WEIGHTS for models that do not fit each other, PG_UPDATE for a result
   that is not finite. */
PG_API pg_status pg_link_write(const pg_weights* base, const pg_weights* model, const pg_link_options* options,
                               const char* path, pg_written* written, pg_written* result_written);

/*
 * The model of the next round, from a file that the app fetched: links that lead there from the model that the phone
 * has, or the whole model (`GET /v1/models/{sha256}?base={sha256 of base}`; FORMAT.md, "Links"). Memory is a piece of
 * a tensor; the disk needs room for both models.
 */
typedef struct pg_pull_options {
  size_t size;         /* sizeof(pg_pull_options) */
  const char* fetched; /* path of that file */
  const char* base;    /* path of the model that the phone has; NULL: none, if a whole model was fetched */
  const char* sha256;  /* of the model asked for: 64 lower-case hexadecimal digits */
  const char* out;     /* path to write it to, atomically; may be that of `base`. One call at a time may have it */
  /* Asked after each stage, on the calling thread: not 0 stops the call. A stage is a pass over the model and takes a
     phone a second or two. NULL: never. */
  int32_t (*stop)(void* context);
  void* context;
} pg_pull_options;

typedef struct pg_pulled {
  size_t size;      /* sizeof(pg_pulled) */
  int64_t bytes;    /* of the model that was written */
  int64_t links;    /* that were applied; 0: the model was fetched whole, or the phone had it */
  int32_t finished; /* 1; 0 if it was stopped: nothing is written */
} pg_pulled;

/* Check the links or the model, and write the next one. Whenever it fails or is killed, `out` has its former content or
   the whole model. If `base` is the model asked for, as after a call that was killed once it was done, `out` becomes
   a copy of it. PG_UPDATE for links that do not lead from `base` to that model, PG_WEIGHTS for a damaged file or
   another whole model: fetch the whole model. */
PG_API pg_status pg_pull(const pg_pull_options* options, pg_pulled* pulled);

/*
 * Masked rounds: the server learns the sum of the phones' updates and no update. FORMAT.md, "Masked rounds".
 */

/* What settings mean for a model. */
typedef struct pg_masked_facts {
  size_t size;        /* sizeof(pg_masked_facts) */
  int64_t values;     /* of a masked update, the weight included: N + 1 */
  int64_t elements;   /* of the blocks together */
  int64_t honest;     /* phones of the smallest cohort that are in the sum for sure and not curious */
  double step;        /* of the grid */
  double noise;       /* standard deviation of a phone's, in steps */
  double sensitivity; /* how far one phone can move the decoded sum over `weight_cap`, in L2, if it clips */
  int32_t width;      /* w, bits of a value */
} pg_masked_facts;

/* Check a round's settings, for a model of `parameters` weights that are not frozen. 0: for no model; then `width` has
   no noise, and values, elements, step and noise mean nothing. PG_USAGE, naming the field and what was expected. */
PG_API pg_status pg_masked_check(const char* settings, int64_t parameters, pg_masked_facts* facts);

/*
 * What a cohort agrees on, for both sides. Messages are JSON, as they are sent; keys and hashes in them are hex. The
 * server calls the functions in this order, and the same again after a restart. PG_UPDATE for a message that a phone
 * must not send, with the reason. What is returned through a pointer is valid until the next call with the handle.
 */
typedef struct pg_cohort pg_cohort;

/* vendor: the vendor's public key, hex; NULL: certificates are not looked at. PG_USAGE for settings out of range. */
PG_API pg_status pg_cohort_open(uint64_t round, const char* base_sha256, const char* settings, const char* vendor,
                                pg_cohort** cohort);
PG_API void pg_cohort_close(pg_cohort* cohort);
/* Check a phone's message: of its "keys", "draws", "shares", "members", "agreement" or "answer". */
PG_API pg_status pg_cohort_check(const pg_cohort* cohort, const char* kind, const char* phone, const char* message);
/* Fix what is the same for all, as the answer to them says it: the "cohort", a list of messages of keys in any order;
   the "draws" by phone; the "members", all that sent shares; who of them are "alive", beside them the members'
   "signatures" by phone. *json: {"cohort": K, then W; "chance": a, "threshold": t, "agree": T}. */
PG_API pg_status pg_cohort_fix(pg_cohort* cohort, const char* what, const char* answer, const char** json);

/* The sum of masked updates, 4 bytes a value. Not thread-safe; it runs `threads` threads inside (1 to 256; 0: 2). */
typedef struct pg_sum pg_sum;
PG_API pg_status pg_sum_open(int64_t values, int32_t width, int32_t threads, pg_sum** sum);
PG_API void pg_sum_close(pg_sum* sum);
/* Add a masked update of this cohort, which was not added yet. PG_UPDATE, with nothing changed, if it does not fit. */
PG_API pg_status pg_sum_add(pg_sum* sum, const pg_cohort* cohort, const char* path);
/* Add a grid update as its phone would mask it, with its noise and without masks: for simulations. */
PG_API pg_status pg_sum_add_grid(pg_sum* sum, const char* path);
/* Take the masks out of the sum of all who are alive. answers: {"phone": answer, ...}. *json: {"wrong": [phones whose
   shares did not fit], "weight": the last value}. PG_UPDATE, and the sum is of no use, if a secret can't be put
   together, or for a sum that the codes can't have. */
PG_API pg_status pg_sum_unmask(pg_sum* sum, const pg_cohort* cohort, const char* answers, const char** json);
/* Once unmasked: the values, int32 [values], the last of which is the weight; valid until close. */
PG_API pg_status pg_sum_values(const pg_sum* sum, const int32_t** values);
/* The sum over `divisor`, decoded: float32 [elements], of which the first are the deltas of all weights that are not
   frozen, in the model's order; valid until close. */
PG_API pg_status pg_sum_decode(pg_sum* sum, const pg_cohort* cohort, double divisor, const float** deltas);

/*
 * A phone's part. A driver sends what each call says, and gives the answer to the next one, until it is done:
 *
 *   pg_masked_open -> (pg_masked_next -> send) ... done -> pg_masked_close
 *
 * Where the server answers 202, the driver sends the same again later. All that was decided stands in the folder
 * `state` before it is told, so a phone that was killed sends the same again.
 */
typedef struct pg_masked pg_masked;
typedef struct pg_masked_options {
  size_t size;             /* sizeof(pg_masked_options) */
  const char* state;       /* folder, of this phone alone: secrets of the round, rounds taken part in, known phones */
  const char* identity;    /* file of the phone's key: see pg_identity_new */
  const char* certificate; /* hex; NULL: none */
  const char* vendor;      /* the vendor's public key, hex; NULL: phones are known by their first key */
  const char* phone;       /* the phone's name at the server */
  const char* grid;        /* path of the grid update that training wrote */
  uint64_t round;          /* the server's number */
  int64_t min_cohort;      /* the least that this phone takes part in; 0: 50 */
  int32_t threads;         /* 1 to 256; 0: 2 */
} pg_masked_options;

/* PG_TOOK_PART if the phone took part in this round or a later one, or sent a masked update of this model; PG_UPDATE
   for a round's number too far from the last one; PG_STATE for a folder in use, or a damaged one. */
PG_API pg_status pg_masked_open(const pg_masked_options* options, pg_masked** masked);
PG_API void pg_masked_close(pg_masked* masked);
/* answer: the body of the answer to what it said last, "" after an upload; NULL: nothing new, it says the same again.
   *json, valid until the next call: {"action": "send": POST `body`, JSON, to `path`; "upload": send the file `path` as
   an update; or "done"; "path", "body"}. PG_UPDATE for an answer that this phone may not go on with: it has then left
   the round. After another error, such as of a full disk, the handle refuses all: open a new one, which goes on. */
PG_API pg_status pg_masked_next(pg_masked* masked, const char* answer, const char** json);

/* Make an Ed25519 key in the file `path`, which must not exist, readable by its owner alone; public_key [65]: hex. */
PG_API pg_status pg_identity_new(const char* path, char* public_key);
PG_API pg_status pg_identity_public(const char* path, char* public_key);
/* The vendor's certificate for a phone's name and public key, by the vendor's key file; certificate [129]: hex. */
PG_API pg_status pg_identity_certify(const char* path, const char* phone, const char* public_key, char* certificate);

/*
 * Any graph of operators that the engine knows, its values accessed by name. For models other than language models (the
 * MLP of paper P) and for tests of single operators. optimizer: NULL, or optimizer_model.onnx to let run() update the
 * parameters. weights: NULL, or a tensor file; its tensors become the graph's inputs of the same names, as parameters.
 * With `unfused` every output of the graph can be read after run().
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
 * C[M,N] = A[M,K] X[N,K]^T for few N; exp, sigmoid, tanh of N elements. A gemm's name with _bf16 at its end rounds A
 * and B to bfloat16. May change between versions.
 */
PG_API pg_status pg_bench_kernel(const char* kernels, const char* name, int64_t M, int64_t N, int64_t K,
                                 int32_t threads, int32_t repeats, double* seconds);

#ifdef __cplusplus
}
#endif
#endif
