"""tutti_torch.DataParallel on CUDA: the tests of tests/torch/test_data_parallel.py, with all tensors on the device."""
import pytest

import test_data_parallel as on_cpu
from bodies import TORCH
from gpu import ON_GPU

NOT_OF_DEVICES = ("test_one_process_without_a_launcher_trains_by_itself", "test_the_example_goes_on_from_its_checkpoint",
                  "test_a_killed_rank_ends_the_training_of_the_others_by_name")
# Under its own names: pytest finds them here, and ranks find the bodies where they are.
globals().update({name: test for name, test in vars(on_cpu).items()
                  if name.startswith("test_") and name not in NOT_OF_DEVICES})
pytestmark = pytest.mark.skipif(ON_GPU and TORCH < (2, 11), reason="older ones do not say which stream compute runs in")
