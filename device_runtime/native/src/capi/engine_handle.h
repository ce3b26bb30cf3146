// pg_engine: an engine, what it was made with, and the text it handed out last.
#pragma once

#include <string>

#include "engine/engine.h"

struct pg_engine {
  phonograd::Engine engine;
  phonograd::EngineOptions options;
  std::string text;  // the last plan or phases
};
