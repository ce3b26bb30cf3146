// The mask of the rows of a tensor that are sent: a bit for each, in the part NAME.rows; no part if all are. FORMAT.md,
// "Mask".
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "update/codec.h"
#include "update/update_reader.h"

namespace phonograd {

// Elements of a row: the last dimension, 1 for a scalar.
size_t row_elements(const TensorSpec& spec);
size_t row_count(const TensorSpec& spec);

// Adds the mask of the rows of these numbers, rising; nothing if all `rows` are sent.
void add_mask(const TensorSpec& base, size_t rows, const std::vector<uint32_t>& sent, EncodedParts& parts);
// The numbers of the rows that are sent, rising. Throws Error(update) for a mask that can't be one of the tensor.
std::vector<uint32_t> sent_rows(const UpdateReader& update, const TensorSpec& tensor);
// Adds the mask's spec, if there is one, which sent_rows() has looked at.
void expect_mask(const UpdateReader& update, const TensorSpec& tensor, std::vector<TensorSpec>& parts);
// The numbers of all rows of a tensor.
std::vector<uint32_t> all_rows(const TensorSpec& tensor);

// The fewest changed rows that take as many bytes as the whole tensor: each comes with a number of 4 bytes.
size_t rows_as_large(const TensorSpec& tensor);
// The two parts of so many rows of codec rows-f32: their numbers, and their weights.
std::array<TensorSpec, 2> numbered_rows(const TensorSpec& tensor, size_t rows);

// Whether lossy codecs choose among the rows of a tensor of this shape; a small one, or one of one row, is sent whole.
bool has_rows(const TensorSpec& tensor);

// Reads scales [first, first + count) of the part NAME.scales. Throws Error(update) for one that is not finite or below
// 0.
void read_scales(const UpdateReader& update, const std::string& name, size_t first, size_t count, float* scales);

}  // namespace phonograd
