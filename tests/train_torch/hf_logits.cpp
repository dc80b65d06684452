// hf_logits OUT f32|f64 FLAGS…: what pretrain_gpt's model, with the weights of --load-hf, makes of sequences of tokens.
// Token i of sequence b is (7 i + 3 b + 1) mod vocabulary; logits [2, s, v] are written as f64.
#include <cstdio>
#include <fstream>
#include <string>

#include "flags.hpp"
#include "hf_folder.hpp"
#include "model.hpp"
#include "tutti/group.hpp"

namespace pretrain {
namespace {

int fail(const std::string& text) {
  std::fprintf(stderr, "hf_logits: %s\n", text.c_str());
  return 1;
}

torch::Tensor tokens_of(const Flags& flags) {
  const auto at = torch::arange(flags.seq_length, torch::kLong);
  return torch::stack({7 * at + 1, 7 * at + 4}).remainder(flags.vocabulary());
}

int write_logits(const char* path, torch::ScalarType type, const Flags& flags) {
  auto group = tutti::Group::from_environment();
  if (!group.ok()) return fail(group.status().to_string());
  auto trained = make_model(flags, whole_share(flags));
  auto layer = DataParallel::create(trained, {.data = *group}, {});
  if (!layer.ok()) return fail(layer.status().to_string());
  if (auto status = load_hf((*layer)->layer(), flags); !status.ok())
    return fail(status.to_string());
  torch::NoGradGuard no_grad;
  auto model = make_model(flags, whole_share(flags));
  const auto values = trained->named_parameters();
  for (auto& item : model->named_parameters()) item.value().copy_(values[item.key()]);
  model->to(type);
  const auto x = model->transform(0, model->embed(tokens_of(flags), {}), {});
  const auto logits = model->logits(x, {}).to(torch::kDouble).contiguous();
  std::ofstream(path, std::ios::binary)
      .write(static_cast<const char*>(logits.data_ptr()),
             static_cast<std::streamsize>(logits.nbytes()));
  return 0;
}

}  // namespace
}  // namespace pretrain

int main(int argc, char** argv) {
  const std::string type = argc > 2 ? argv[2] : "";
  if (type != "f32" && type != "f64") return pretrain::fail("OUT f32|f64 FLAGS…");
  const auto parsed = pretrain::parse_flags(argc - 2, argv + 2);
  if (parsed.exit_code) return pretrain::fail(parsed.text);
  return pretrain::write_logits(argv[1], type == "f32" ? torch::kFloat : torch::kDouble,
                                parsed.flags);
}
