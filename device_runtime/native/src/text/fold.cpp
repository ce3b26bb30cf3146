#include "text/fold.h"

#include <cstdint>
#include <cstring>
#include <vector>

#include "formats/utf8.h"
#include "text/unicode.h"

namespace phonograd {
namespace {

constexpr uint32_t kNonJoiner = 0x200C, kJoiner = 0x200D, kZeroWidthSpace = 0x200B, kKeycap = 0x20E3;

bool is_emoji_selector(uint32_t point) {
  return point == 0xFE0E || point == 0xFE0F;
}

bool is_emoji_tag(uint32_t point) {
  return point >= 0xE0020 && point <= 0xE007F;
}

bool is_keycap_base(char byte) {
  return (byte >= '0' && byte <= '9') || byte == '#' || byte == '*';
}

bool is_ascii(char byte) {
  return static_cast<unsigned char>(byte) < 0x80;
}

bool is_capital(char byte) {
  return byte >= 'A' && byte <= 'Z';
}

// The ASCII that a typographic mark stands for; null for others.
const char* plain_mark(uint32_t point) {
  switch (point) {
    case 0x2018:
    case 0x2019:
    case 0xFF07:
      return "'";
    case 0x201C:
    case 0x201D:
      return "\"";
    case 0x2026:
      return "...";
    case 0x2013:
    case 0x2014:
      return "-";
    default:
      return nullptr;
  }
}

// Whether it is written for an apostrophe between letters, and is something else elsewhere.
bool is_apostrophe_within(uint32_t point) {
  return point == 0xB4 || point == 0x2BB || point == 0x2BC || point == 0x55A || point == 0x201B || point == 0x2032;
}

// Folds a text from left to right.
class Folder {
 public:
  Folder(std::string_view text, Letters letters) : text_(text), letters_(letters) { out_.reserve(text.size()); }

  std::string run() {
    while (at_ < text_.size()) {
      copy_plain();
      if (at_ < text_.size()) add(character_at(text_, at_));
    }
    return std::move(out_);
  }

 private:
  void copy_plain();
  void append_lower(std::string_view part);
  void end_ascii();
  bool must_compose(const Character& one) const;
  void add(const Character& one);
  bool is_kept(const Character& one) const;
  bool replace_mark(const Character& one);
  void note(CodePoint is);
  void note_letter(CodePoint is);
  void compose();

  bool is_turkish(const Character& one) const {
    return letters_ == Letters::turkish && (one.point == 'I' || one.point == 0x130);
  }
  Character next_of(const Character& one) const { return character_at(text_, at_ + one.length); }

  const std::string_view text_;
  const Letters letters_;
  size_t at_ = 0;
  std::string out_;
  size_t starter_ = 0;  // where in out_ the last code point begins that marks may combine with
  CodePoint last_;      // the last code point of out_, or what its marks are on
  uint32_t combining_ = 0;
  std::vector<uint32_t> points_;
};

// What comes now combines with the ASCII character before it.
void Folder::end_ascii() {
  starter_ = out_.size() - 1;
  last_ = code_point(static_cast<unsigned char>(out_.back()));
  combining_ = 0;
}

// What is not seen stays where it makes another word or emoji.
bool Folder::is_kept(const Character& one) const {
  const Character next = next_of(one);
  if (one.point == kZeroWidthSpace) return last_.is_unspaced();
  if (one.point == kJoiner && last_.is_pictograph() && next.is.is_pictograph() && next.valid) return true;
  if (one.point == kJoiner || one.point == kNonJoiner) {
    return last_.has_joiners() && next.valid && next.is.has_joiners();
  }
  if (is_emoji_selector(one.point)) {
    return last_.is_pictograph() || (next.point == kKeycap && !out_.empty() && is_keycap_base(out_.back()));
  }
  return is_emoji_tag(one.point) && last_.is_pictograph();
}

bool Folder::replace_mark(const Character& one) {
  const char* plain = plain_mark(one.point);
  if (plain == nullptr && is_apostrophe_within(one.point) && last_.is_letter() && next_of(one).is.is_letter())
    plain = "'";
  if (plain == nullptr) return false;
  out_ += plain;
  end_ascii();
  return true;
}

// Take notes of a code point that is appended next.
void Folder::note(CodePoint is) {
  combining_ = is.combining_class();
  if (combining_ == 0) starter_ = out_.size();
}

void Folder::note_letter(CodePoint is) {
  if (!is.extends() || is.has_joiners()) last_ = is;
}

// Copy what folding leaves as it is, and ASCII.
void Folder::copy_plain() {
  constexpr size_t kNone = ~size_t{0};
  const size_t begin = at_;
  size_t starter = kNone;
  const bool turkish = letters_ == Letters::turkish;
  for (;;) {
    const size_t ascii = at_;
    while (at_ < text_.size() && is_ascii(text_[at_]) && !(turkish && text_[at_] == 'I')) ++at_;
    if (at_ > ascii) {
      starter = at_ - 1;
      last_ = code_point(static_cast<unsigned char>(text_[starter]));
      combining_ = 0;
    }
    const Character one = character_at(text_, at_);
    const uint32_t combining = one.is.combining_class();
    if (one.length < 2 || !one.is.is_plain() || (combining != 0 && combining < combining_)) break;
    if (combining == 0) starter = at_;
    combining_ = combining;
    note_letter(one.is);
    at_ += one.length;
  }
  if (starter != kNone) starter_ = out_.size() + (starter - begin);
  append_lower(text_.substr(begin, at_ - begin));
}

void Folder::append_lower(std::string_view part) {
  const size_t from = out_.size();
  out_ += part;
  if (letters_ == Letters::as_written) return;
  char* copied = &out_[from];
  for (size_t i = 0; i < part.size(); ++i) copied[i] = static_cast<char>(copied[i] | (is_capital(copied[i]) << 5));
}

bool Folder::must_compose(const Character& one) const {
  if (is_turkish(one) || (one.is.combining_class() != 0 && one.is.combining_class() < combining_)) return true;
  if (!one.is.composes() || one.is.folds() || combining_ != 0) return one.is.normalizes();
  const Character starter = character_at(out_, starter_);
  return starter.valid && starter.is.starts() && compose_together(starter.point, one.point);
}

void Folder::add(const Character& one) {
  if (!one.valid) {
    starter_ = out_.size();
    last_ = one.is;
    combining_ = 0;
    out_ += text_[at_];
  } else if (one.is.is_unseen() ? !is_kept(one) : one.is.is_rewritten() && replace_mark(one)) {
    // it goes, or is in the text already
  } else if (must_compose(one)) {
    return compose();
  } else {
    note(one.is);
    note_letter(one.is);
    if (one.is.folds() && letters_ != Letters::as_written)
      append_utf8(fold_case(one.point), &out_);
    else
      out_.append(text_.data() + at_, one.length);
  }
  at_ += one.length;
}

// Compose the code points from the last starter to the next that no mark before it can change.
void Folder::compose() {
  points_.clear();
  for (size_t at = starter_; at < out_.size();) {
    const Character one = character_at(out_, at);
    if (!one.valid) {
      points_.clear();
      starter_ = at + one.length;
    } else {
      points_.push_back(one.point);
    }
    at += one.length;
  }
  const size_t begin = at_;
  for (Character one = character_at(text_, at_); one.length != 0; one = character_at(text_, at_)) {
    const bool goes = one.is.is_unseen() && !is_kept(one);
    if (at_ > begin && !goes && !one.is.normalizes() && one.is.combining_class() == 0) break;
    if (!goes) {
      points_.push_back(one.point);
      note_letter(code_point(fold_case(one.point)));
    }
    at_ += one.length;
  }
  fold_and_compose(points_, letters_);
  out_.resize(starter_);
  for (const uint32_t point : points_) {
    note(code_point(point));
    append_utf8(point, &out_);
  }
}

}  // namespace

std::string fold(std::string_view text, Letters letters) {
  return Folder(text, letters).run();
}

}  // namespace phonograd
