// One JSON object on one line, built field by field: events and reports.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace phonograd {

class JsonLine {
 public:
  JsonLine() = default;
  explicit JsonLine(const char* event) { text("event", event); }

  JsonLine& text(const char* name, std::string_view value);
  JsonLine& number(const char* name, double value);  // null for NaN and infinities
  JsonLine& numbers(const char* name, const std::vector<double>& values);
  JsonLine& integer(const char* name, int64_t value);
  JsonLine& integers(const char* name, const std::vector<int>& values);
  JsonLine& object(const char* name, const JsonLine& value) { return raw(name, value.str()); }
  JsonLine& list(const char* name, const std::vector<JsonLine>& values);
  JsonLine& raw(const char* name, std::string_view json);  // `json` is valid JSON already

  std::string str() const { return "{" + fields_ + "}"; }

 private:
  std::string fields_;
};

}  // namespace phonograd
