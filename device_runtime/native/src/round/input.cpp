#include "round/input.h"

#include <cstdio>

#include "base/error.h"
#include "base/files.h"
#include "text/text.h"
#include "training/trainer.h"

namespace phonograd {
namespace {

constexpr const char* kUserText = "user text";

// `name` stands for bytes in memory, in messages.
Text text_of(const TextSource& source, const char* name) {
  return source.bytes ? Text(*source.bytes, name) : Text(source.path);
}

std::string percent(double share) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g %%", 100 * share);
  return text;
}

void require_ids(const std::string& name, const std::vector<int64_t>& ids, int64_t vocabulary) {
  for (size_t at = 0; at < ids.size(); ++at) {
    if (ids[at] >= 0 && ids[at] < vocabulary) continue;
    throw Error(Status::text, name + ": token " + std::to_string(at) + " is " + std::to_string(ids[at]) +
                                  ", expected an id from 0 to " + std::to_string(vocabulary - 1));
  }
}

TrainingText whole_text(const RoundSettings& settings, const Manifest& manifest, uint64_t seed) {
  if (!settings.user.is_given()) {
    TrainingText text;
    text.stream = settings.tokens.empty() ? settings.stream : read_tokens(settings.tokens);
    require_ids(user_text_name(settings), text.stream, manifest.vocabulary);
    text.user_tokens = static_cast<int64_t>(text.stream.size());
    text.user_unknown_share = unknown_share(text.stream);
    return text;
  }
  const Vocabulary vocabulary = Vocabulary::load(manifest.path("vocab.txt"), manifest.vocabulary);
  const Text user = text_of(settings.user, kUserText);
  if (!settings.rehearsal.is_given()) return mix(user.messages(), {}, 1.0, vocabulary, seed);
  const Text general = text_of(settings.rehearsal, "rehearsal text");
  return mix(user.messages(), general.messages(), settings.user_share, vocabulary, seed);
}

}  // namespace

std::vector<int64_t> read_tokens(const std::string& path) {
  const std::string data = read_file(path, kMaxTextBytes, Status::text);
  if (data.empty() || data.size() % 4 != 0) {
    throw Error(Status::text, path + ": " + std::to_string(data.size()) +
                                  " bytes, expected little-endian int32 token ids, at least one");
  }
  std::vector<int64_t> ids;
  ids.reserve(data.size() / 4);
  for (size_t at = 0; at < data.size(); at += 4) {
    uint32_t word = 0;
    for (size_t i = 4; i-- > 0;) word = word << 8 | static_cast<unsigned char>(data[at + i]);
    ids.push_back(static_cast<int32_t>(word));
  }
  return ids;
}

std::string user_text_name(const RoundSettings& settings) {
  if (!settings.tokens.empty()) return settings.tokens;
  return settings.user.path.empty() ? kUserText : settings.user.path;
}

TrainingText training_text(const RoundSettings& settings, const Manifest& manifest, uint64_t seed) {
  const TrainingText text = whole_text(settings, manifest, seed);
  if (writes_update(settings) && text.user_unknown_share > settings.max_unknown) {
    throw Error(Status::text, user_text_name(settings) + ": " + percent(text.user_unknown_share) +
                                  " of the words are unknown to the vocabulary, at most " +
                                  percent(settings.max_unknown) +
                                  " expected of an update; give UTF-8 text in the model's language, or raise "
                                  "`max_unknown`");
  }
  require_window(manifest, static_cast<int64_t>(text.stream.size()));
  return text;
}

OutputSample output_sample(const Manifest& manifest, const std::vector<int64_t>& stream, SampleDraw draw) {
  if (draw.drawn == 0) return {};
  const Vocabulary vocabulary = Vocabulary::load(manifest.path("vocab.txt"), manifest.vocabulary);
  return draw_output_sample(stream, vocabulary.counts(), draw.drawn, draw.seed);
}

}  // namespace phonograd
