// The user's own words: what they wrote, how often, and after which words. FORMAT.md, "Personal words".
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/fold.h"

namespace phonograd {

// Bounds of a store: when one is passed, all counts are halved, and what falls to zero is forgotten.
constexpr size_t kMaxPersonalWords = 8192, kMaxPersonalFollowers = 65536;
constexpr size_t kMaxVetoes = 4096, kMaxPersonalWordBytes = 64;
constexpr uint32_t kMostCounted = 0xFFFFFFFF;  // a count that is reached stays
constexpr size_t kMostForms = 4;               // ways to write a word that are counted
// How often a guarded word must be written before it is learned.
constexpr uint32_t kGuardedTimes = 3;
constexpr int64_t kAny = -2;  // in place of a word of a context
// Words of context that are counted: the last one, and the last two.
constexpr int kPersonalOrders = 2;

// What a word is called in a context: a hash of its spelling, which says less than the word. 0: none.
uint64_t word_key(std::string_view word);
constexpr uint64_t kMessageEndKey = 1;  // also before a text

// The words before a place in a text, the last one first.
using WordsBefore = std::array<uint64_t, kPersonalOrders>;

struct PersonalWord {
  std::string spelling;  // in UTF-8, folded as text is
  uint32_t count = 0;
  std::map<std::string, uint32_t> forms;  // how often it was written so in the middle of sentences

  // How the user writes it most often; "": not known.
  std::string_view form() const;
  void count_form(const std::string& form);
};

// The user's model's share of the mixture: how much of the text it explained, by online EM in fixed point, so that the
// bits are the same everywhere. In 2^-20.
struct MixtureWeight {
  int64_t own, all;

  double value() const { return static_cast<double>(own) / static_cast<double>(all); }
};

// One caller at a time. Where a method throws, out of memory for one, the store is whole; a word that was being learned
// may be counted in some of its places.
//
// Several processes may have one file. A store keeps what was done to it since it was read, and save() does that again
// to what the file has by then: no process loses words or vetoes.
class PersonalWords {
 public:
  // From the file at `path`, which need not exist; "": nowhere. Throws Error(state) if it is damaged.
  explicit PersonalWords(std::string path);

  // Write the file, atomically and readable only by its owner, and take over what others saved. Throws Error(storage),
  // state if it was damaged meanwhile, and usage without a path.
  void save();
  // The same as JSON: {"words": [{"word", "count"}...], most frequent first, "vetoed": [...], "bytes": of the file}.
  std::string list() const;

  // [W]; the first stands for a message's end. An index holds while generation() is the same.
  const std::vector<PersonalWord>& words() const { return words_; }
  uint64_t generation() const { return generation_; }
  int64_t index(std::string_view word) const;  // of a folded word; -1 if it is unknown

  // Write to `next` [W] each word's probability after `before`, as the user writes: absolute discounting, interpolated
  // over contexts of two words, one, and none. Returns how many words of the context were seen before; -1: nothing was
  // learned yet, and `next` is zero.
  int predict(const WordsBefore& before, std::vector<double>& next) const;
  // The share of this prediction in the mixture, by what predict() returned.
  double weight(int seen) const { return seen < 0 ? 0 : weights_[static_cast<size_t>(seen)].value(); }
  // Fit that share to a word that was written: `own` and `model` are its probabilities, each times its share.
  void fit(int seen, double own, double model);

  // Learn a word that was written after `before`, as `form` if that is in the middle of a sentence, else "". Guarded:
  // not before the third time, and until then only its hash is kept. Not learned: vetoed words, <unk>, what is not
  // UTF-8, and what is longer than kMaxPersonalWordBytes.
  void learn(const WordsBefore& before, std::string_view word, std::string_view form, bool guarded);
  void learn_message_end(const WordsBefore& before);

  // The letters that the words of erase(), veto() and allow() fold by; the file keeps them.
  void use_letters(Letters letters);
  // Delete a word and what followed it; it may be learned again. Returns whether it was there.
  bool erase(std::string_view word);
  // Delete a word and never learn it again, until allow(). Throws Error(usage) for too many.
  void veto(std::string_view word);
  // Take a veto back. Returns whether there was one.
  bool allow(std::string_view word);
  // Delete everything, vetoes too, and what other processes have not saved yet.
  void forget();

 private:
  struct Follower {
    uint32_t word, count;
  };
  using Change = std::function<void(PersonalWords&)>;
  using Context = std::array<int64_t, kPersonalOrders>;  // indices of the words before, the last one first

  void apply(Change change);
  void clear();
  void add(const WordsBefore& before, const std::string& word, const std::string& form, bool guarded);
  void remove(const std::string& word);
  bool learnable(std::string_view word) const;
  void count(const WordsBefore& before, uint32_t word);
  bool context_of(const WordsBefore& before, int length, Context& context) const;
  void keep(uint32_t divisor, uint32_t forgotten);
  std::string document() const;
  void read(const std::string& file);

  std::string path_;
  std::vector<PersonalWord> words_;
  std::unordered_map<uint64_t, uint32_t> indices_;  // by key
  std::map<Context, std::vector<Follower>> followers_;
  size_t follower_count_ = 0;
  std::map<uint64_t, uint32_t> waiting_;  // keys of guarded words, and how often they were written
  std::set<std::string, std::less<>> vetoed_;
  uint64_t tokens_ = 0;  // the sum of the words' counts
  std::array<MixtureWeight, kPersonalOrders + 1> weights_;
  uint64_t generation_ = 0;
  Letters letters_ = Letters::common;
  int64_t forgotten_ = 0;        // how often all was
  std::vector<Change> changes_;  // since the file was read
};

}  // namespace phonograd
