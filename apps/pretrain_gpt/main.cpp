// pretrain_gpt: trains a GPT or a Llama, alone or as one rank of a job.
//
//   tutti run -n 4 pretrain_gpt --data-path /usr/share/common-licenses/GPL-3 --train-iters 200
#include "tutti/libtorch/trainer.hpp"

int main(int argc, char** argv) { return tutti::libtorch::pretrain_gpt(argc, argv); }
