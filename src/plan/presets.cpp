// Shapes as their papers and model cards give them. Where GPT-3's table contradicts itself (XL: 24
// heads of 128 in a width of 2048; 13B: width 5140 for 40 heads of 128) the numbers here are those
// that give the parameters it names.
#include <fmt/format.h>

#include "core/words.hpp"
#include "tutti/plan/model.hpp"

namespace tutti::plan {
namespace {

Model gpt(std::string name, std::int64_t layers, std::int64_t hidden, std::int64_t heads,
          std::int64_t positions) {
  Model model;
  model.name = std::move(name);
  model.layers = layers;
  model.hidden = hidden;
  model.heads = model.kv_heads = heads;
  model.head_dim = hidden / heads;
  model.ffn = 4 * hidden;
  model.vocab = 50257;
  model.max_positions = model.context = positions;
  model.tied = model.bias = model.dropout = true;
  return model;
}

Model llama(std::string name, std::int64_t layers, std::int64_t hidden, std::int64_t heads,
            std::int64_t kv_heads, std::int64_t ffn, std::int64_t vocab, std::int64_t context) {
  Model model;
  model.name = std::move(name);
  model.layers = layers;
  model.hidden = hidden;
  model.heads = heads;
  model.kv_heads = kv_heads;
  model.head_dim = hidden / heads;
  model.ffn = ffn;
  model.vocab = vocab;
  model.context = context;
  model.glu = true;
  return model;
}

std::vector<Model> make_presets() {
  return {
      gpt("gpt2-small", 12, 768, 12, 1024),
      gpt("gpt2-medium", 24, 1024, 16, 1024),
      gpt("gpt2-large", 36, 1280, 20, 1024),
      gpt("gpt2-xl", 48, 1600, 25, 1024),
      gpt("gpt3-125m", 12, 768, 12, 2048),
      gpt("gpt3-350m", 24, 1024, 16, 2048),
      gpt("gpt3-760m", 24, 1536, 16, 2048),
      gpt("gpt3-1.3b", 24, 2048, 16, 2048),
      gpt("gpt3-2.7b", 32, 2560, 32, 2048),
      gpt("gpt3-6.7b", 32, 4096, 32, 2048),
      gpt("gpt3-13b", 40, 5120, 40, 2048),
      gpt("gpt3-175b", 96, 12288, 96, 2048),
      llama("llama2-7b", 32, 4096, 32, 32, 11008, 32000, 4096),
      llama("llama2-13b", 40, 5120, 40, 40, 13824, 32000, 4096),
      llama("llama2-70b", 80, 8192, 64, 8, 28672, 32000, 4096),
      llama("llama3-8b", 32, 4096, 32, 8, 14336, 128256, 8192),
      llama("llama3-70b", 80, 8192, 64, 8, 28672, 128256, 8192),
      llama("llama3.1-8b", 32, 4096, 32, 8, 14336, 128256, 8192),
      llama("llama3.1-70b", 80, 8192, 64, 8, 28672, 128256, 8192),
      llama("llama3.1-405b", 126, 16384, 128, 8, 53248, 128256, 8192),
  };
}

}  // namespace

inline namespace v1 {

const std::vector<Model>& preset_models() {
  static const std::vector<Model> presets = make_presets();
  return presets;
}

Result<Model> preset_model(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Model& model : preset_models()) {
    if (model.name == name) return model;
    names.push_back(model.name);
  }
  return Status(Code::invalid_argument, unknown_word("model preset", name, names));
}

}  // namespace v1
}  // namespace tutti::plan
