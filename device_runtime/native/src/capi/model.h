// pg_model: what a caller needs to size its buffers.
#pragma once

#include <string>

#include "engine/engine.h"
#include "phonograd.h"

namespace phonograd {

// Fill in the caller's struct. `kernels` must live as long as the handle. Throws Error(usage) for NULL or a wrong size.
void describe_model(const Engine& engine, const EngineOptions& options, const std::string& kernels, pg_model* model);

}  // namespace phonograd
