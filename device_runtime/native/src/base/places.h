// Where a command may write: one rule for all outputs of the phone command and the C ABI.
#pragma once

#include <string>
#include <vector>

namespace phonograd {

// Make the folder that a file or folder is to be in, and those above it. Throws Error(storage).
void make_folder_of(const std::string& path);

// Check the outputs of some work before it begins, and make the folders that they are to be in. Every output must
// differ from every input and from every other output, and may replace only a regular file. `descriptor`: an output
// that the caller has open, or -1. Empty paths are skipped. Throws Error: usage for an output that is an input or
// another output, storage if no file can be written there.
void require_outputs(const std::vector<std::string>& outputs, const std::vector<std::string>& inputs,
                     int descriptor = -1);

}  // namespace phonograd
