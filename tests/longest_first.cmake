# What takes long begins first, in seconds on 2 cores: what wants both of them before all others, since there would be no
# place for two beside a crowd of small ones, and at the end it would have nothing beside it. ctest reads this where it has
# read all tests, and knows better after a first run; a name that is not there does no harm.
function(takes seconds)
  set_tests_properties(${ARGN} PROPERTIES COST ${seconds})
endfunction()

takes(1900 train_torch_pretrain_layouts)
takes(1800 tests_pass_under_asan tests_pass_under_tsan)
takes(1700 torch_backend train_torch_pretrain_bits train_torch_pretrain_recovery)
takes(1600 train_torch_pretrain_hf train_torch_pretrain_faults train_torch_pretrain_precision train_torch_pretrain_log)
takes(1500 train_torch_pretrain_own train_torch_pretrain_predict train_torch_pretrain_paths torch_conformance_quick
      python_failures train_torch_pretrain_reference python_worlds python_operations)

takes(190 fault_world)
takes(75 fault_soak unit_schedule world_collectives)
takes(60 world_algorithms install_serves_an_outside_project world_large scheduler_kubernetes fault_matrix)
takes(45 world_groups web_show_page world_random packages_work_in_an_empty_root fault_world_lazy train_checkpoint)
takes(30 train_modes world_pipeline scheduler_mpirun scheduler_torchrun simulation unit_plan scheduler_tutorial fault_run_nodes
      train_hand_over web_show_command tool_device_test scheduler_slurm contract_transport device_groups device_host)
