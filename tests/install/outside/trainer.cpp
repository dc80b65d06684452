// pretrain_gpt from the installed library. Torch's headers take long to compile: what is called is declared here.
#include <functional>

namespace at {
class Tensor;
}

namespace tutti::libtorch {
int pretrain_gpt(int argc, const char* const* argv,
                 const std::function<at::Tensor(const at::Tensor&, const at::Tensor&)>& loss);
}

int main(int argc, char** argv) { return tutti::libtorch::pretrain_gpt(argc, argv, {}); }
