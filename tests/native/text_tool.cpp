// Text handling, metrics and update files of the native engine, asked from tests/native/test_text.py: a request a line
// on stdin, an answer a line on stdout. Words stand between spaces, bytes in hex ("-" for none). An answer begins with
// "ok", or is "error STATUS MESSAGE".
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "text/counts.h"
#include "text/evaluation.h"
#include "text/kss.h"
#include "text/output_sample.h"
#include "text/rehearsal.h"
#include "text/text.h"
#include "text/vocabulary.h"
#include "text/windows.h"
#include "update/update_file.h"

using namespace phonograd;

namespace {

std::string hex_of(std::string_view bytes) {
  std::string text;
  char digits[3];
  for (const char byte : bytes) {
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned>(static_cast<unsigned char>(byte)));
    text += digits;
  }
  return bytes.empty() ? "-" : text;
}

// The words of one request, taken from the left.
class Request {
 public:
  explicit Request(const std::string& line) : words_(line) {}

  std::string word() {
    std::string word;
    words_ >> word;
    return word;
  }
  std::string bytes() {
    const std::string hex = word();
    std::string bytes;
    for (size_t at = 0; hex != "-" && at < hex.size(); at += 2) {
      bytes += static_cast<char>(std::strtol(hex.substr(at, 2).c_str(), nullptr, 16));
    }
    return bytes;
  }
  int64_t whole() { return std::strtoll(word().c_str(), nullptr, 10); }
  uint64_t natural() { return std::strtoull(word().c_str(), nullptr, 10); }
  double real() { return std::strtod(word().c_str(), nullptr); }
  bool more() { return static_cast<bool>(words_ >> std::ws) && !words_.eof(); }

 private:
  std::istringstream words_;
};

class Answer {
 public:
  template <typename Item>
  Answer& add(const Item& item) {
    text_ << ' ' << item;
    return *this;
  }
  Answer& add_real(double value) {
    char text[64];
    std::snprintf(text, sizeof text, "%a", value);
    return add(text);
  }
  std::string text() const { return text_.str(); }

 private:
  std::ostringstream text_;
};

// A model with a memory of one token a column: the row of scores is that of token + 3 * (the token before it).
class TableScorer : public Scorer {
 public:
  TableScorer(std::vector<float> table, int64_t V) : table_(std::move(table)), V_(V) {}

  void reset() override { before_.clear(); }
  const float* logits(const int64_t* tokens, int64_t T, int64_t B) override {
    before_.resize(static_cast<size_t>(B));
    scores_.clear();
    for (int64_t i = 0; i < T * B; ++i) {
      int64_t& before = before_[static_cast<size_t>(i % B)];
      const float* row = table_.data() + (tokens[i] + 3 * before) % V_ * V_;
      scores_.insert(scores_.end(), row, row + V_);
      before = tokens[i];
    }
    return scores_.data();
  }

 private:
  std::vector<float> table_;  // [V,V]
  int64_t V_;
  std::vector<int64_t> before_;  // [B]
  std::vector<float> scores_;
};

class Tool {
 public:
  Answer answer(Request request) {
    const std::string what = request.word();
    Answer answer;
    if (what == "tokens") {
      const std::string message = request.bytes();
      Tokens tokens(message);
      for (std::string_view token; tokens.next(token);) answer.add(hex_of(token));
    } else if (what == "split") {
      const std::string data = request.bytes();
      for (const std::string_view message : split_messages(data)) answer.add(hex_of(message));
    } else if (what == "read") {
      const Text file(request.bytes());
      for (const std::string_view message : file.messages()) answer.add(hex_of(message));
    } else if (what == "vocabulary") {
      vocabulary_.emplace(request.bytes(), "vocab.txt");
      index_.emplace(*vocabulary_);
      answer.add(vocabulary_->size());
    } else if (what == "load") {
      const std::string path = request.bytes();
      answer.add(Vocabulary::load(path, request.whole()).size());
    } else if (what == "stream") {
      const std::string data = request.bytes();
      for (const int64_t id : vocabulary_->stream(split_messages(data))) answer.add(id);
    } else if (what == "mix") {
      mix_text(request, answer);
    } else if (what == "counts") {
      for (const int64_t count : load_counts(request.bytes(), *vocabulary_)) answer.add(count);
    } else if (what == "sample") {
      draw_sample(request, answer);
    } else if (what == "windows") {
      cut_windows(request, answer);
    } else if (what == "columns") {
      const int64_t minibatch = request.whole();
      answer.add(evaluation_minibatch(minibatch, request.whole()));
    } else if (what == "scores") {
      const std::string bytes = request.bytes();
      std::vector<float> table(bytes.size() / sizeof(float));
      std::memcpy(table.data(), bytes.data(), table.size() * sizeof(float));
      scorer_.emplace(std::move(table), vocabulary_->size());
    } else if (what == "evaluate") {
      evaluate_text(request, answer);
    } else if (what == "suggest") {
      const std::string bytes = request.bytes(), typed = request.bytes();
      std::vector<float> scores(bytes.size() / sizeof(float));
      std::memcpy(scores.data(), bytes.data(), scores.size() * sizeof(float));
      const auto k = static_cast<size_t>(request.whole());
      for (const int64_t id : suggest(*index_, scores.data(), typed, k)) answer.add(id);
    } else if (what == "update") {
      update(request, answer);
    } else {
      throw Error(Status::usage, "unknown request " + what);
    }
    return answer;
  }

 private:
  void mix_text(Request& request, Answer& answer) const {
    const std::string user = request.bytes(), general = request.bytes();
    const double share = request.real();
    const TrainingText text =
        mix(split_messages(user), split_messages(general), share, *vocabulary_, request.natural());
    answer.add(text.user_tokens).add(text.general_tokens).add_real(text.user_share());
    for (const int64_t id : text.stream) answer.add(id);
  }

  // Candidates, each with its shift, of the words drawn, the seed, how many counts, these, and the stream.
  static void draw_sample(Request& request, Answer& answer) {
    const int64_t drawn = request.whole();
    const uint64_t seed = request.natural();
    std::vector<int64_t> counts(static_cast<size_t>(request.whole())), stream;
    for (int64_t& count : counts) count = request.whole();
    while (request.more()) stream.push_back(request.whole());
    const OutputSample sample = draw_output_sample(stream, counts, drawn, seed);
    for (size_t place = 0; place < sample.candidates.size(); ++place) {
      answer.add(sample.candidates[place]).add_real(static_cast<double>(sample.shifts[place]));
    }
  }

  // Per window: its predictions, tokens and targets.
  static void cut_windows(Request& request, Answer& answer) {
    const int64_t minibatch = request.whole(), bptt = request.whole();
    std::vector<int64_t> stream;
    while (request.more()) stream.push_back(request.whole());
    const Windows windows(stream, minibatch, bptt);
    std::vector<int64_t> tokens(static_cast<size_t>(minibatch * bptt)), targets(tokens.size());
    for (int64_t window = 0; window < windows.count(); ++window) {
      answer.add(windows.fill(window, tokens.data(), targets.data()));
      for (const int64_t id : tokens) answer.add(id);
      for (const int64_t id : targets) answer.add(id);
    }
  }

  void evaluate_text(Request& request, Answer& answer) {
    const std::string data = request.bytes();
    const int64_t minibatch = request.whole(), bptt = request.whole();
    const bool kss = request.whole() != 0;
    int64_t done = 0, all = 0;
    const Evaluation result = evaluate(*scorer_, *vocabulary_, split_messages(data), minibatch, bptt, kss,
                                       [&](int64_t tokens, int64_t of) { done = tokens, all = of; });
    answer.add(result.tokens).add(result.unknown_tokens).add(done).add(all).add(result.has_kss);
    answer.add_real(result.perplexity).add_real(result.perplexity_with_unknown);
    answer.add_real(result.top1).add_real(result.kss);
  }

  static void update(Request& request, Answer& answer) {
    const TensorFile base(request.bytes()), trained(request.bytes());
    const std::string path = request.bytes();
    UpdateInfo info;
    info.base_sha256 = request.bytes();
    info.round = request.natural();
    info.tokens = request.natural();
    info.codec = request.bytes();
    info.seed = request.natural();
    std::vector<TensorOut> tensors;
    for (const TensorSpec& spec : trained.specs()) {
      tensors.push_back({spec.name, spec.dtype, spec.shape, trained.data(spec)});
    }
    AtomicFile file(path);
    answer.add(write_update(file, base, tensors, info));
  }

  std::optional<Vocabulary> vocabulary_;
  std::optional<PrefixIndex> index_;
  std::optional<TableScorer> scorer_;
};

}  // namespace

int main() {
  Tool tool;
  for (std::string line; std::getline(std::cin, line);) {
    try {
      const std::string answer = tool.answer(Request(line)).text();
      std::cout << "ok" << answer << std::endl;
    } catch (const Error& error) {
      std::cout << "error " << static_cast<int>(error.status()) << ' ' << hex_of(error.what()) << std::endl;
    }
  }
}
