// The registry of codecs.
#include "formats/utf8.h"
#include "update/codec.h"

namespace phonograd {
namespace {

constexpr const Codec* kCodecs[] = {&kFullF32, &kRowsF32, &kDeltaF16, &kDeltaBF16, &kDeltaInt8,
                                    &kRotQ4,   &kRotQ2,   &kRotQ1,    &kTopRows};

}  // namespace

std::vector<std::string> codec_names() {
  std::vector<std::string> names;
  for (const Codec* codec : kCodecs) names.push_back(codec->name);
  return names;
}

const Codec& codec_named(const std::string& name) {
  std::string known;
  for (const Codec* codec : kCodecs) {
    if (name == codec->name) return *codec;
    known += (known.empty() ? "" : ", ") + std::string(codec->name);
  }
  throw Error(Status::update, "codec " + quote_text(name.substr(0, 80)) + " is unknown; this version has " + known);
}

}  // namespace phonograd
