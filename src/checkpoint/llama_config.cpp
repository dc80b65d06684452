#include "tutti/train/llama_config.hpp"

#include <fmt/format.h>

#include <cmath>

#include "checkpoint/safe_file.hpp"
#include "core/json.hpp"

namespace tutti::train {
inline namespace [[gnu::visibility("default")]] v1 {
namespace {

constexpr std::size_t kLongest = 1 << 20;
constexpr const char* kLlama3 = "llama3";

struct TypeWord {
  Dtype type;
  const char* word;
};
constexpr TypeWord kTypes[] = {
    {Dtype::f32, "float32"}, {Dtype::bf16, "bfloat16"}, {Dtype::f16, "float16"}};

// Takes values out of an object; the first that is not as it must be sticks.
class Fields {
 public:
  explicit Fields(const Json& object, std::string prefix = "")
      : object_(object), prefix_(std::move(prefix)) {}

  const Status& status() const { return status_; }
  const Json* find(const char* key) const {
    const Json* value = object_.find(key);
    return value == nullptr || value->is_null() ? nullptr : value;
  }
  void refuse(const std::string& key, const std::string& why) {
    if (status_.ok()) status_ = {Code::invalid_argument, fmt::format("{}{} {}", prefix_, key, why)};
  }
  void refuse_value(const char* key, const std::string& why) {
    refuse(key, fmt::format("is {}: {}", object_[key].dump(), why));
  }

  // Absent: `otherwise`, or where that is below 1 an error.
  std::int64_t count(const char* key, std::int64_t otherwise = 0) {
    const Json* value = find(key);
    if (value == nullptr) {
      if (otherwise < 1) refuse(key, "is missing");
      return otherwise;
    }
    const auto number = value->whole();
    if (!number || *number < 1 || *number > INT32_MAX) {
      refuse_value(key, "it is to be a whole number above 0");
      return 1;
    }
    return *number;
  }
  double real(const char* key, double otherwise) {
    const Json* value = find(key);
    if (value == nullptr) return otherwise;
    const double number = value->number();
    if (value->kind() != Json::Kind::number || !std::isfinite(number) || number <= 0)
      refuse_value(key, "it is to be a number above 0");
    return number;
  }
  bool flag(const char* key) {
    const Json* value = find(key);
    if (value != nullptr && value->kind() != Json::Kind::boolean)
      refuse_value(key, "it is to be true or false");
    return value != nullptr && value->boolean();
  }
  std::string word(const char* key) const {
    const Json* value = find(key);
    return value == nullptr ? "" : value->string();
  }
  // Absent or of that value; anything else would be another model.
  void must_be(const char* key, double number) {
    const Json* value = find(key);
    if (value != nullptr && (value->kind() != Json::Kind::number || value->number() != number))
      refuse_value(key, fmt::format("only {} is known", number));
  }
  void must_be_absent(const char* key) {
    if (find(key) != nullptr) refuse_value(key, "it is not known");
  }
  void adopt(const Status& status) {
    if (status_.ok()) status_ = status;
  }

 private:
  const Json& object_;
  std::string prefix_;
  Status status_;
};

// rope_parameters has the base as well; rope_scaling, which is older, has it beside it.
void read_rope(Fields& fields, LlamaConfig& config) {
  config.rope_theta = fields.real("rope_theta", config.rope_theta);
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const Json* object = fields.find(key);
    if (object == nullptr) continue;
    if (object->kind() != Json::Kind::object) return fields.refuse_value(key, "it is no object");
    Fields rope(*object, fmt::format("{}.", key));
    config.rope_theta = rope.real("rope_theta", config.rope_theta);
    rope.must_be("partial_rotary_factor", 1);
    const char* type_key = rope.find("rope_type") != nullptr ? "rope_type" : "type";
    const std::string type = rope.word(type_key);
    if (type == kLlama3) {
      RopeScaling scaling;
      scaling.factor = rope.real("factor", scaling.factor);
      scaling.low_frequency_factor = rope.real("low_freq_factor", 1);
      scaling.high_frequency_factor = rope.real("high_freq_factor", 4);
      scaling.original_positions = rope.count("original_max_position_embeddings");
      if (scaling.high_frequency_factor <= scaling.low_frequency_factor)
        rope.refuse_value("high_freq_factor", "it is to be above low_freq_factor");
      config.rope_scaling = scaling;
    } else if (type != "default") {
      if (rope.find(type_key) == nullptr)
        rope.refuse("rope_type", "is missing");
      else
        rope.refuse_value(type_key, "only default and llama3 are known");
    }
    fields.adopt(rope.status());
  }
}

void read_bias(Fields& fields, LlamaConfig& config) {
  config.bias = fields.flag("attention_bias");
  if (fields.flag("mlp_bias") != config.bias)
    fields.refuse_value("attention_bias", "it is to be the same as mlp_bias");
}

void read_type(Fields& fields, LlamaConfig& config) {
  for (const char* key : {"torch_dtype", "dtype"}) {
    if (fields.find(key) == nullptr) continue;
    const std::string word = fields.word(key);
    bool known = false;
    for (const TypeWord& type : kTypes)
      if (word == type.word) {
        config.dtype = type.type;
        known = true;
      }
    if (!known) fields.refuse_value(key, "only float32, bfloat16 and float16 are known");
  }
}

void read_end_token(Fields& fields, LlamaConfig& config) {
  const Json* end = fields.find("eos_token_id");
  if (end == nullptr) return;
  const Json& first = end->kind() == Json::Kind::array && end->size() > 0 ? (*end)[0] : *end;
  config.end_token = first.whole().value_or(-1);
}

// What would be another model, however its weights are called.
void check_kind(Fields& fields) {
  if (fields.word("model_type") != "llama") {
    if (fields.find("model_type") == nullptr)
      fields.refuse("model_type", "is missing");
    else
      fields.refuse_value("model_type", "only llama is known");
  }
  if (const Json* names = fields.find("architectures"); names != nullptr)
    if (names->items().size() != 1 || (*names)[0].string() != "LlamaForCausalLM")
      fields.refuse_value("architectures", "only LlamaForCausalLM is known");
  const std::string activation = fields.word("hidden_act");
  if (fields.find("hidden_act") != nullptr && activation != "silu" && activation != "swish")
    fields.refuse_value("hidden_act", "only silu is known");
  fields.must_be("attention_dropout", 0);
  fields.must_be("partial_rotary_factor", 1);
  for (const char* key : {"sliding_window", "quantization_config", "num_local_experts"})
    fields.must_be_absent(key);
}

Json rope_json(const LlamaConfig& config) {
  if (!config.rope_scaling) return nullptr;
  const RopeScaling& scaling = *config.rope_scaling;
  return {{"rope_type", kLlama3},
          {"factor", scaling.factor},
          {"low_freq_factor", scaling.low_frequency_factor},
          {"high_freq_factor", scaling.high_frequency_factor},
          {"original_max_position_embeddings", scaling.original_positions}};
}

const char* word_of(Dtype type) {
  for (const TypeWord& known : kTypes)
    if (known.type == type) return known.word;
  return "float32";
}

}  // namespace

Result<LlamaConfig> parse_llama_config(const std::string& text) {
  const auto json = Json::parse(text);
  if (!json.ok()) return json.status();
  if (json->kind() != Json::Kind::object) return Status(Code::corrupt, "is no JSON object");
  Fields fields(*json);
  check_kind(fields);
  LlamaConfig config;
  config.layers = fields.count("num_hidden_layers");
  config.hidden = fields.count("hidden_size");
  config.heads = fields.count("num_attention_heads");
  config.kv_heads = fields.count("num_key_value_heads", config.heads);
  config.ffn = fields.count("intermediate_size");
  config.vocabulary = fields.count("vocab_size");
  config.positions = fields.count("max_position_embeddings", config.positions);
  config.norm_epsilon = fields.real("rms_norm_eps", config.norm_epsilon);
  config.tied = fields.flag("tie_word_embeddings");
  if (config.hidden % config.heads != 0)
    fields.refuse_value("hidden_size", "it is no multiple of num_attention_heads");
  if (config.heads % config.kv_heads != 0)
    fields.refuse_value("num_attention_heads", "it is no multiple of num_key_value_heads");
  if (fields.count("head_dim", config.hidden / config.heads) != config.hidden / config.heads)
    fields.refuse_value("head_dim", "only hidden_size / num_attention_heads is known");
  read_rope(fields, config);
  read_bias(fields, config);
  read_type(fields, config);
  read_end_token(fields, config);
  if (!fields.status().ok()) return fields.status();
  config.text = text;
  return config;
}

Result<LlamaConfig> read_llama_config(const std::string& folder) {
  const std::string path = folder + "/config.json";
  const auto text = checkpoint::read_bounded(path, kLongest);
  if (!text.ok()) return text.status();
  auto config = parse_llama_config(*text);
  if (!config.ok()) return config.status().annotate(path);
  return config;
}

std::string to_config_text(const LlamaConfig& config) {
  if (!config.text.empty()) {
    auto json = Json::parse(config.text);
    const char* key = json->find("dtype") != nullptr ? "dtype" : "torch_dtype";
    if ((*json)[key].string() == word_of(config.dtype)) return config.text;
    (*json)[key] = word_of(config.dtype);
    return json->dump(2) + "\n";
  }
  const std::optional<std::int64_t> end =
      config.end_token >= 0 ? std::optional(config.end_token) : std::nullopt;
  return Json{{"architectures", Json::array({"LlamaForCausalLM"})},
              {"attention_bias", config.bias},
              {"attention_dropout", 0.0},
              {"bos_token_id", nullptr},
              {"eos_token_id", end},
              {"head_dim", config.hidden / config.heads},
              {"hidden_act", "silu"},
              {"hidden_size", config.hidden},
              {"initializer_range", 0.02},
              {"intermediate_size", config.ffn},
              {"max_position_embeddings", config.positions},
              {"mlp_bias", config.bias},
              {"model_type", "llama"},
              {"num_attention_heads", config.heads},
              {"num_hidden_layers", config.layers},
              {"num_key_value_heads", config.kv_heads},
              {"pretraining_tp", 1},
              {"rms_norm_eps", config.norm_epsilon},
              {"rope_scaling", rope_json(config)},
              {"rope_theta", config.rope_theta},
              {"tie_word_embeddings", config.tied},
              {"torch_dtype", word_of(config.dtype)},
              {"use_cache", true},
              {"vocab_size", config.vocabulary}}
             .dump(2) +
         "\n";
}

}  // namespace v1
}  // namespace tutti::train
