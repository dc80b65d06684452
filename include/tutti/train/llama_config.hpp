// tutti/train/llama_config.hpp - a Llama's config.json, as the transformers library has it. docs/formats/hugging_face.md.
//
// Read strictly: what would make another model of the weights than LlamaForCausalLM with these numbers is refused by the
// name of its key. Keys that say nothing of the arithmetic are left alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tutti/status.hpp"
#include "tutti/types.hpp"

namespace tutti::train {
inline namespace [[gnu::visibility("default")]] v1 {

// Rotary positions of Llama 3.1 ("rope_type": "llama3"): slow turns are slowed down further, by `factor`.
struct RopeScaling {
  double factor = 8;
  double low_frequency_factor = 1;
  double high_frequency_factor = 4;
  std::int64_t original_positions = 8192;
  bool operator==(const RopeScaling&) const = default;
};

struct LlamaConfig {
  std::int64_t layers = 32;
  std::int64_t hidden = 4096;
  std::int64_t heads = 32;
  std::int64_t kv_heads = 32;
  std::int64_t ffn = 11008;
  std::int64_t vocabulary = 32000;
  std::int64_t positions = 2048;
  double rope_theta = 10000;
  std::optional<RopeScaling> rope_scaling{};
  double norm_epsilon = 1e-6;
  bool tied = false;
  bool bias = false;            // of all linear layers but the head
  Dtype dtype = Dtype::f32;     // of the weights in the folder
  std::int64_t end_token = -1;  // that ends a document; -1: unknown
  std::string text{};           // as it was read; empty: it was not
};

// Of `folder`/config.json. io and corrupt name the file, invalid_argument the key.
Result<LlamaConfig> read_llama_config(const std::string& folder);
Result<LlamaConfig> parse_llama_config(const std::string& text);
// Its file. Where there is `text`, that with another type of the weights, and nothing else changed.
std::string to_config_text(const LlamaConfig& config);

}  // namespace v1
}  // namespace tutti::train
