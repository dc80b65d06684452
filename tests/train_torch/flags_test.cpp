// Every number of pretrain_gpt's command line that cannot be meant is refused by its flag's name.
#include "flags.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace pretrain {
namespace {

Parsed parse(std::vector<std::string> words) {
  words.insert(words.begin(), {"pretrain_gpt", "--data-path", "text"});
  std::vector<const char*> pointers;
  for (const std::string& word : words) pointers.push_back(word.c_str());
  return parse_flags(static_cast<int>(pointers.size()), pointers.data());
}

void expect_refused(const std::string& flag, const std::string& value) {
  const Parsed parsed = parse({flag, value});
  EXPECT_EQ(parsed.exit_code, 2) << flag << " " << value;
  EXPECT_TRUE(parsed.text.starts_with(flag + ": '" + value + "' is not a")) << parsed.text;
  EXPECT_NE(parsed.text.find("see pretrain_gpt --help"), std::string::npos) << parsed.text;
}

TEST(Flags, real_numbers_are_finite_and_in_their_range) {
  for (const char* flag : {"--lr", "--min-lr", "--clip-grad", "--weight-decay", "--adam-beta1",
                           "--adam-beta2", "--adam-eps", "--sgd-momentum", "--dropout"})
    for (const char* value : {"nan", "inf", "-1", "1e400", "1e30", "much", "1x"})
      expect_refused(flag, value);
  for (const char* flag : {"--adam-beta1", "--adam-beta2", "--sgd-momentum", "--dropout"})
    expect_refused(flag, "1");
  for (const char* flag : {"--lr", "--adam-eps"}) expect_refused(flag, "0");
}

TEST(Flags, whole_numbers_are_whole_and_in_their_range) {
  for (const char* flag :
       {"--num-layers", "--hidden-size", "--num-attention-heads", "--seq-length",
        "--micro-batch-size", "--global-batch-size", "--train-iters", "--seed", "--eval-interval",
        "--eval-iters", "--lr-warmup-iters", "--lr-decay-iters", "--bucket-size",
        "--check-weight-hash-across-dp-replicas-interval", "--log-interval", "--save-interval",
        "--keep", "--threads"})
    for (const char* value : {"nan", "-1", "99999999999999999999", "1.5", "1e3"})
      expect_refused(flag, value);
  for (const char* flag : {"--num-layers", "--hidden-size", "--num-attention-heads", "--seq-length",
                           "--micro-batch-size", "--eval-iters", "--log-interval", "--threads"})
    expect_refused(flag, "0");
}

TEST(Flags, a_preset_fills_in_what_is_not_given) {
  const Flags llama = parse({"--preset", "llama2-70b", "--num-layers", "2"}).flags;
  EXPECT_EQ(llama.num_layers, 2);
  EXPECT_EQ(llama.hidden_size, 8192);
  EXPECT_EQ(llama.query_groups(), 8);
  EXPECT_EQ(llama.ffn(), 28672);
  EXPECT_TRUE(llama.swiglu && llama.has_rotary() && !llama.has_bias());
  EXPECT_TRUE(llama.untie_embeddings_and_output_weights);
  EXPECT_EQ(llama.normalization, kRmsNorm);
  const Flags gpt = parse({"--preset", "gpt2-small"}).flags;
  EXPECT_TRUE(!gpt.swiglu && !gpt.has_rotary() && gpt.has_bias());
  EXPECT_EQ(gpt.query_groups(), 12);
  const Parsed unknown = parse({"--preset", "llama9"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_NE(unknown.text.find("llama2-7b"), std::string::npos) << unknown.text;
}

TEST(Flags, parts_of_a_model_that_do_not_fit_are_named) {
  const auto says = [](std::vector<std::string> words) { return parse(std::move(words)).text; };
  EXPECT_NE(
      says({"--group-query-attention", "--num-query-groups", "3"}).find("--num-query-groups 3"),
      std::string::npos);
  EXPECT_NE(says({"--num-query-groups", "2"}).find("needs --group-query-attention"),
            std::string::npos);
  EXPECT_NE(says({"--position-embedding-type", "alibi"}).find("rope"), std::string::npos);
  EXPECT_NE(says({"--position-embedding-type", "rope", "--hidden-size", "12"}).find("in pairs"),
            std::string::npos);
}

TEST(Flags, a_misspelt_one_is_named_before_those_that_are_missing) {
  const char* words[] = {"pretrain_gpt", "--foo", "3"};
  const Parsed parsed = parse_flags(3, words);
  EXPECT_EQ(parsed.exit_code, 2);
  EXPECT_EQ(parsed.text, "there is no '--foo'; see pretrain_gpt --help");
}

TEST(Flags, numbers_that_can_be_meant_are_taken_as_they_are) {
  const Parsed parsed = parse({"--lr", "3e-3", "--adam-beta1", "0", "--clip-grad", "0", "--seed",
                               "0", "--train-iters", "+7", "--bucket-size", "1048576"});
  ASSERT_FALSE(parsed.exit_code) << parsed.text;
  EXPECT_EQ(parsed.flags.lr, 3e-3);
  EXPECT_EQ(parsed.flags.adam_beta1, 0);
  EXPECT_EQ(parsed.flags.clip_grad, 0);
  EXPECT_EQ(parsed.flags.seed, 0);
  EXPECT_EQ(parsed.flags.train_iters, 7);
  EXPECT_EQ(parsed.flags.bucket_size, 1048576);
}

TEST(Flags, the_device_is_cpu_or_cuda_and_rehearsals_are_on_the_cpu) {
  EXPECT_EQ(parse({}).flags.device, kCpu);
  EXPECT_EQ(parse({"--device", "cuda"}).flags.device, kCuda);
  EXPECT_EQ(parse({"--device", "gpu"}).exit_code, 2);
  const Parsed both = parse({"--device", "cuda", "--predict"});
  EXPECT_EQ(both.exit_code, 2);
  EXPECT_NE(both.text.find("--predict"), std::string::npos) << both.text;
}

TEST(Flags, what_does_not_fit_together_is_refused) {
  EXPECT_EQ(parse({"--min-lr", "2", "--lr", "1"}).text, "--min-lr 2 is larger than --lr 1");
  EXPECT_EQ(parse({"--foo"}).exit_code, 2);
  EXPECT_NE(parse({"--foo"}).text.find("see pretrain_gpt --help"), std::string::npos);
  Flags flags = parse({"--micro-batch-size", "1048576"}).flags;
  EXPECT_FALSE(check_batches(flags, 1 << 20).ok());  // more than an int holds
  EXPECT_EQ(parse({"--async-save"}).text, "--async-save needs --save");
  EXPECT_EQ(parse({"--on-failure", "restart"}).exit_code, 2);
  EXPECT_EQ(parse({"--on-failure", "restart", "--save", "d"}).flags.load, kLatest);
  EXPECT_EQ(parse({"--on-failure", "restart", "--save", "d", "--load", "e"}).exit_code, 2);
  EXPECT_EQ(parse({"--on-failure", "hope"}).exit_code, 2);
  EXPECT_EQ(parse({"--buddy", "--on-failure", "shrink"}).exit_code, 2);
}

TEST(Flags, a_batch_that_does_not_divide_is_shared_out_where_ranks_may_be_lost) {
  const std::vector<std::string> words = {"--micro-batch-size", "2", "--global-batch-size", "10"};
  Flags flags = parse(words).flags;
  EXPECT_FALSE(check_batches(flags, 3).ok());
  flags.on_failure = kShrink;
  EXPECT_TRUE(check_batches(flags, 3).ok());
  EXPECT_FALSE(check_batches(flags, 6).ok()) << "a rank would have nothing to do";
  for (int ranks = 1; ranks <= 5; ++ranks) {
    int next = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const BatchShare share = share_of_batch(flags, rank, ranks);
      EXPECT_EQ(share.first, next);
      EXPECT_GE(share.count, 5 / ranks);
      next += share.count;
    }
    EXPECT_EQ(next, 5);
  }
}

}  // namespace
}  // namespace pretrain
