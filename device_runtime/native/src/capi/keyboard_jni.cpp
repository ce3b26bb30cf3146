// The native methods of org.phonograd.Keyboard, over the C ABI. Strings cross
// as byte[] in UTF-8: the UTF-8 of JNI's own functions is another one beyond
// U+FFFF. The Java class holds its lock during each call, and checks arguments.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "capi/border.h"
#include "phonograd.h"

using namespace phonograd;

namespace {

// What is used of jni.h, so that no build needs a JDK or an NDK: the function
// table's entries, by their numbers in the JNI specification ("JNI Functions",
// "Interface Function Table"). tests/android_harness/app/test_keyboard.py compares them with a
// jni.h.
struct JniEnv {
  void* const* functions;
};
using jint = int32_t;
using jlong = int64_t;
using jdouble = double;
using jobject = void*;
enum JniFunction : size_t {
  GetArrayLength = 171,
  NewByteArray = 176,
  GetByteArrayRegion = 200,
  SetByteArrayRegion = 208,
  SetDoubleArrayRegion = 214,
};

template <typename Result, typename... Arguments>
Result call(JniEnv* env, JniFunction function, Arguments... arguments) {
  return reinterpret_cast<Result (*)(JniEnv*, Arguments...)>(env->functions[function])(env, arguments...);
}

std::string string_of(JniEnv* env, jobject bytes) {
  const jint size = call<jint>(env, GetArrayLength, bytes);
  std::string text(static_cast<size_t>(size), '\0');
  call<void>(env, GetByteArrayRegion, bytes, jint{0}, size, text.data());
  return text;
}

// null, and a pending OutOfMemoryError, if there is no memory.
jobject bytes_of(JniEnv* env, std::string_view text) {
  const auto size = static_cast<jint>(text.size());
  const auto bytes = call<jobject>(env, NewByteArray, size);
  if (bytes != nullptr) call<void>(env, SetByteArrayRegion, bytes, jint{0}, size, text.data());
  return bytes;
}

constexpr size_t kStatesKept = 16;  // 10 KB each for the 2x650 model

struct Keyboard {
  pg_predictor* predictor = nullptr;
  pg_personal* personal = nullptr;
  std::deque<std::string> before;  // the states before the texts fed last, the newest at the end
  std::string result;              // of the last call that has one
};

Keyboard& keyboard_of(jlong handle) {
  return *reinterpret_cast<Keyboard*>(static_cast<intptr_t>(handle));
}

// The failed function's message stands until `guarded` sets it again.
void check(pg_status status) {
  if (status != PG_OK) throw Error(static_cast<Status>(status), pg_last_error());
}

std::string state_of(const Keyboard& keyboard) {
  const void* state = nullptr;
  size_t bytes = 0;
  check(pg_predictor_state(keyboard.predictor, &state, &bytes));
  return std::string(static_cast<const char*>(state), bytes);
}

void restore(Keyboard& keyboard, const std::string& state) {
  check(pg_predictor_restore(keyboard.predictor, state.data(), state.size()));
}

// What `work` returns, or a status negated.
template <typename Work>
jint count_or_status(Work work) {
  jint count = 0;
  const pg_status status = border::run_guarded([&] { count = work(); });
  return status == PG_OK ? count : -status;
}

}  // namespace

// The symbol of a method of the class; all are private and static there.
#define METHOD(name) Java_org_phonograd_Keyboard_##name

extern "C" {

// Methods of jint return a pg_status unless they say otherwise.

// 0 if there is no memory.
PG_API jlong METHOD(create)(JniEnv*, jobject) {
  return static_cast<jlong>(reinterpret_cast<intptr_t>(new (std::nothrow) Keyboard));
}

PG_API void METHOD(destroy)(JniEnv*, jobject, jlong handle) {
  Keyboard* keyboard = &keyboard_of(handle);
  pg_predictor_close(keyboard->predictor);
  pg_personal_close(keyboard->personal);
  delete keyboard;
}

// The message of this thread's last error.
PG_API jobject METHOD(message)(JniEnv* env, jobject) {
  return bytes_of(env, pg_last_error());
}

PG_API jobject METHOD(result)(JniEnv* env, jobject, jlong handle) {
  return bytes_of(env, keyboard_of(handle).result);
}

// weights, personal: may be null. After an error the keyboard can only be
// destroyed.
PG_API jint METHOD(open)(JniEnv* env, jobject, jlong handle, jobject folder, jobject weights, jobject personal,
                         jint threads) {
  return border::run_guarded([&] {
    Keyboard& keyboard = keyboard_of(handle);
    pg_options options{};
    options.size = sizeof options;
    options.threads = threads;
    const std::string model = weights == nullptr ? "" : string_of(env, weights);
    check(pg_predictor_open(string_of(env, folder).c_str(), weights == nullptr ? nullptr : model.c_str(), &options,
                            &keyboard.predictor));
    if (personal == nullptr) return;
    check(pg_personal_open(string_of(env, personal).c_str(), &keyboard.personal));
    check(pg_predictor_personal(keyboard.predictor, keyboard.personal));
  });
}

PG_API jint METHOD(reset)(JniEnv*, jobject, jlong handle) {
  return border::run_guarded([&] {
    Keyboard& keyboard = keyboard_of(handle);
    check(pg_predictor_reset(keyboard.predictor));
    keyboard.before.clear();
  });
}

PG_API jint METHOD(feed)(JniEnv* env, jobject, jlong handle, jobject text, uint8_t learn) {
  return border::run_guarded([&] {
    Keyboard& keyboard = keyboard_of(handle);
    const std::string words = string_of(env, text);
    keyboard.before.push_back(state_of(keyboard));
    const pg_status status = (learn ? pg_predictor_learn : pg_predictor_feed)(keyboard.predictor, words.c_str());
    if (status != PG_OK) {
      restore(keyboard, keyboard.before.back());
      keyboard.before.pop_back();
      check(status);
    }
    if (keyboard.before.size() > kStatesKept) keyboard.before.pop_front();
  });
}

// 1; 0: no state is kept; or a status negated.
PG_API jint METHOD(correct)(JniEnv*, jobject, jlong handle) {
  return count_or_status([&]() -> jint {
    Keyboard& keyboard = keyboard_of(handle);
    if (keyboard.before.empty()) return 0;
    restore(keyboard, keyboard.before.back());
    keyboard.before.pop_back();
    return 1;
  });
}

// How many words, or a status negated. The words are the result, a line each;
// probabilities: double[], one each at most; neighbours: may be null.
PG_API jint METHOD(suggest)(JniEnv* env, jobject, jlong handle, jobject prefix, jint shift, uint8_t emoji,
                            uint8_t slips, jdouble slip_cost, jobject neighbours, jobject probabilities) {
  return count_or_status([&] {
    Keyboard& keyboard = keyboard_of(handle);
    const std::string pairs = neighbours == nullptr ? "" : string_of(env, neighbours);
    const pg_suggest_options options{sizeof options, shift,     emoji,
                                     slips,          slip_cost, neighbours == nullptr ? nullptr : pairs.c_str()};
    std::vector<pg_suggestion> found(static_cast<size_t>(call<jint>(env, GetArrayLength, probabilities)));
    int32_t count = 0;
    check(pg_predictor_suggest(keyboard.predictor, string_of(env, prefix).c_str(), &options,
                               static_cast<int32_t>(found.size()), found.data(), &count));
    keyboard.result.clear();
    for (jint at = 0; at < count; ++at) {
      const pg_suggestion& word = found[static_cast<size_t>(at)];
      (keyboard.result += word.word) += '\n';
      call<void>(env, SetDoubleArrayRegion, probabilities, at, jint{1}, &word.probability);
    }
    return count;
  });
}

// words: a line each.
PG_API jint METHOD(block)(JniEnv* env, jobject, jlong handle, jobject words) {
  return border::run_guarded(
      [&] { check(pg_predictor_block(keyboard_of(handle).predictor, string_of(env, words).c_str())); });
}

// words: a line each, none empty; scores: double[], one each.
PG_API jint METHOD(scores)(JniEnv* env, jobject, jlong handle, jobject words, jobject scores) {
  return border::run_guarded([&] {
    const std::string lines = string_of(env, words);
    std::vector<std::string> candidates;
    for (size_t begin = 0, end; begin < lines.size(); begin = end + 1) {
      end = std::min(lines.find('\n', begin), lines.size());
      candidates.push_back(lines.substr(begin, end - begin));
    }
    std::vector<const char*> pointers;
    for (const std::string& one : candidates) pointers.push_back(one.c_str());
    std::vector<double> found(pointers.size());
    check(pg_predictor_scores(keyboard_of(handle).predictor, pointers.data(), static_cast<int32_t>(pointers.size()),
                              found.data()));
    call<void>(env, SetDoubleArrayRegion, scores, jint{0}, static_cast<jint>(found.size()), found.data());
  });
}

// The result is pg_personal_list's JSON.
PG_API jint METHOD(list)(JniEnv*, jobject, jlong handle) {
  return border::run_guarded([&] {
    const char* json = nullptr;
    check(pg_personal_list(keyboard_of(handle).personal, &json));
    keyboard_of(handle).result = json;
  });
}

// 1 if the word was known, else 0; or a status negated.
PG_API jint METHOD(remove)(JniEnv* env, jobject, jlong handle, jobject word) {
  return count_or_status([&] {
    int32_t deleted = 0;
    check(pg_personal_delete(keyboard_of(handle).personal, string_of(env, word).c_str(), &deleted));
    return deleted;
  });
}

PG_API jint METHOD(veto)(JniEnv* env, jobject, jlong handle, jobject word) {
  return border::run_guarded(
      [&] { check(pg_personal_veto(keyboard_of(handle).personal, string_of(env, word).c_str())); });
}

// 1 if it was vetoed, else 0; or a status negated.
PG_API jint METHOD(allow)(JniEnv* env, jobject, jlong handle, jobject word) {
  return count_or_status([&] {
    int32_t allowed = 0;
    check(pg_personal_allow(keyboard_of(handle).personal, string_of(env, word).c_str(), &allowed));
    return allowed;
  });
}

PG_API jint METHOD(forget)(JniEnv*, jobject, jlong handle) {
  return pg_personal_forget(keyboard_of(handle).personal);
}

PG_API jint METHOD(save)(JniEnv*, jobject, jlong handle) {
  return pg_personal_save(keyboard_of(handle).personal);
}

}  // extern "C"
