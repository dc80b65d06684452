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
  for (const char* flag :
       {"--lr", "--min-lr", "--clip-grad", "--weight-decay", "--adam-beta1", "--adam-beta2",
        "--adam-eps", "--sgd-momentum", "--dropout", "--lr-warmup-fraction", "--lr-warmup-init",
        "--start-weight-decay", "--end-weight-decay"})
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
      const BatchShare share = share_of_batch(flags, flags.global_batch_size, rank, ranks);
      EXPECT_EQ(share.first, next);
      EXPECT_GE(share.count, 5 / ranks);
      next += share.count;
    }
    EXPECT_EQ(next, 5);
  }
}

void expect_misfit(const std::vector<std::string>& words, const std::string& why) {
  const Parsed parsed = parse(words);
  EXPECT_EQ(parsed.exit_code, 2) << why;
  EXPECT_NE(parsed.text.find(why), std::string::npos) << parsed.text;
  EXPECT_EQ(parsed.text.find('\n'), std::string::npos) << parsed.text;
}

TEST(Flags, schedules_that_contradict_themselves_are_refused) {
  expect_misfit({"--lr-decay-style", "WSD"}, "WSD needs --lr-wsd-decay-iters");
  expect_misfit({"--lr-wsd-decay-iters", "5"}, "needs --lr-decay-style WSD");
  expect_misfit(
      {"--lr-decay-style", "WSD", "--lr-wsd-decay-iters", "90", "--lr-warmup-iters", "11"},
      "are more than the 100 of --train-iters");
  expect_misfit({"--lr-warmup-iters", "5", "--lr-warmup-fraction", "0.1"}, "give one of them");
  expect_misfit({"--lr-warmup-init", "1e-5"}, "needs --lr-warmup-iters");
  expect_misfit({"--lr-warmup-init", "1", "--lr-warmup-iters", "5"}, "is larger than --lr 0.001");
  expect_misfit({"--start-weight-decay", "0.1"}, "need --weight-decay-incr-style");
  expect_misfit({"--weight-decay-incr-style", "linear", "--end-weight-decay", "1"},
                "linear needs --start-weight-decay");
  expect_misfit({"--weight-decay-incr-style", "cosine", "--start-weight-decay", "1",
                 "--end-weight-decay", "0.5"},
                "--start-weight-decay 1 is larger");
  expect_misfit({"--rampup-batch-size", "4", "4", "10", "--predict"}, "not with --rampup");
  expect_misfit({"--rampup-batch-size", "4", "4"}, "--rampup-batch-size");
  expect_misfit({"--lr-wsd-decay-style", "square"}, "--lr-wsd-decay-style");
}

TEST(Flags, a_warm_up_may_be_a_share_of_the_decay) {
  const Flags flags =
      parse({"--lr-warmup-fraction", "0.125", "--train-iters", "40", "--lr-warmup-init", "1e-4"})
          .flags;
  EXPECT_EQ(flags.schedule().rate.warmup_steps, 5);
  EXPECT_DOUBLE_EQ(flags.schedule().rate.at(1), 1e-4 + 9e-4 / 5);
}

TEST(Flags, a_ramp_leads_to_the_whole_batch_in_what_all_ranks_compute_at_once) {
  const auto refusal = [](const char* start, const char* increment, int ranks) {
    Flags flags = parse({"--rampup-batch-size", start, increment, "100", "--global-batch-size",
                         "48", "--micro-batch-size", "2"})
                      .flags;
    const auto status = check_batches(flags, ranks);
    return status.ok() ? "" : status.message();
  };
  EXPECT_EQ(refusal("8", "8", 4), "");
  EXPECT_EQ(refusal("8", "20", 2), "");
  EXPECT_NE(refusal("8", "20", 4).find("8 and 20 are not both multiples of 8"), std::string::npos);
  EXPECT_NE(refusal("8", "12", 2).find("do not lead from 8 up to"), std::string::npos);
  EXPECT_NE(refusal("48", "8", 4).find("do not lead"), std::string::npos);
}

// By Megatron's formulas, evaluated elsewhere.
TEST(Schedules, weight_decay_grows_to_its_end) {
  const WeightDecay linear{0.01, 0.1, 10, DecayGrowth::linear};
  EXPECT_DOUBLE_EQ(linear.at(1), 0.019);
  EXPECT_DOUBLE_EQ(linear.at(5), 0.055);
  EXPECT_DOUBLE_EQ(linear.at(10), 0.1);
  EXPECT_DOUBLE_EQ(linear.at(11), 0.1);
  const WeightDecay cosine{0.01, 0.1, 10, DecayGrowth::cosine};
  EXPECT_NEAR(cosine.at(1), 0.012202456766718092, 1e-15);
  EXPECT_NEAR(cosine.at(5), 0.055, 1e-15);
  EXPECT_NEAR(cosine.at(9), 0.09779754323328192, 1e-15);
  EXPECT_EQ(WeightDecay({0.3, 0.3, 10, DecayGrowth::constant}).at(4), 0.3);
}

TEST(Schedules, batches_grow_with_what_was_consumed) {
  const BatchRamp ramp{16, 8, 1000};  // six increments of 166.7 sequences
  const std::vector<std::pair<std::uint64_t, int>> wanted = {
      {0, 16},   {166, 16}, {167, 24}, {333, 24},  {334, 32},  {500, 40},
      {666, 40}, {667, 48}, {834, 56}, {1000, 64}, {1001, 64}, {1 << 30, 64}};
  for (const auto& [consumed, batch] : wanted) EXPECT_EQ(ramp.at(consumed, 64), batch) << consumed;
  EXPECT_EQ(BatchRamp{}.at(0, 64), 64);
}

TEST(Schedules, read_back_from_their_words) {
  Flags flags = parse({"--weight-decay-incr-style", "cosine", "--start-weight-decay", "0.1",
                       "--end-weight-decay", "0.30000000000000004", "--rampup-batch-size", "4", "2",
                       "99", "--lr-decay-style", "WSD", "--lr-wsd-decay-iters", "7",
                       "--lr-wsd-decay-style", "minus_sqrt"})
                    .flags;
  const auto words = to_words(flags.schedule());
  const auto back = schedule_of(words, Schedule{});
  ASSERT_TRUE(back);
  EXPECT_EQ(to_words(*back), words);
  EXPECT_EQ(back->decay.end, 0.1 + 0.2);
  EXPECT_EQ(back->ramp.samples, 99);
  // Of before there was more than a learning rate.
  const auto old = schedule_of(tutti::train::to_words(flags.schedule().rate), flags.schedule());
  ASSERT_TRUE(old);
  EXPECT_EQ(old->decay.end, 0.1 + 0.2);
  EXPECT_EQ(old->ramp.start, 0);
}

}  // namespace
}  // namespace pretrain
