#include "formats/json_line.h"

#include "formats/json.h"

namespace phonograd {

JsonLine& JsonLine::text(const char* name, std::string_view value) {
  return raw(name, json::quote(value));
}

JsonLine& JsonLine::number(const char* name, double value) {
  return raw(name, json::number(value));
}

JsonLine& JsonLine::integer(const char* name, int64_t value) {
  return raw(name, std::to_string(value));
}

JsonLine& JsonLine::integers(const char* name, const std::vector<int>& values) {
  std::string list;
  for (const int value : values) list += (list.empty() ? "" : ",") + std::to_string(value);
  return raw(name, "[" + list + "]");
}

JsonLine& JsonLine::numbers(const char* name, const std::vector<double>& values) {
  std::string list;
  for (const double value : values) list += (list.empty() ? "" : ",") + json::number(value);
  return raw(name, "[" + list + "]");
}

JsonLine& JsonLine::list(const char* name, const std::vector<JsonLine>& values) {
  std::string list;
  for (const JsonLine& value : values) list += (list.empty() ? "" : ",") + value.str();
  return raw(name, "[" + list + "]");
}

JsonLine& JsonLine::raw(const char* name, std::string_view json) {
  if (!fields_.empty()) fields_ += ",";
  fields_.append(json::quote(name)).append(":").append(json);
  return *this;
}

}  // namespace phonograd
