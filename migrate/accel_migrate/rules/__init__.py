"""Every rule, in reading order: the order of their codes."""

from __future__ import annotations

from accel_migrate.rule import Rule
from accel_migrate.rules.accelerator_made import RULE as ACCELERATOR_MADE
from accel_migrate.rules.accelerator_parameter import RULE as ACCELERATOR_PARAMETER
from accel_migrate.rules.accumulation_by_hand import RULE as ACCUMULATION_BY_HAND
from accel_migrate.rules.autocast_region import RULE as AUTOCAST_REGION
from accel_migrate.rules.backward_call import RULE as BACKWARD_CALL
from accel_migrate.rules.batch_statistics import RULE as BATCH_STATISTICS
from accel_migrate.rules.cuda_only import RULE as CUDA_ONLY
from accel_migrate.rules.data_not_shared import RULE as DATA_NOT_SHARED
from accel_migrate.rules.dataset_downloaded import RULE as DATASET_DOWNLOADED
from accel_migrate.rules.device_move import RULE as DEVICE_MOVE
from accel_migrate.rules.distributed_sampler import RULE as DISTRIBUTED_SAMPLER
from accel_migrate.rules.evaluation_gather import RULE as EVALUATION_GATHER
from accel_migrate.rules.evaluation_summed import RULE as EVALUATION_SUMMED
from accel_migrate.rules.evaluation_whole import RULE as EVALUATION_WHOLE
from accel_migrate.rules.experiment_logged import RULE as EXPERIMENT_LOGGED
from accel_migrate.rules.file_written import RULE as FILE_WRITTEN
from accel_migrate.rules.folder_made import RULE as FOLDER_MADE
from accel_migrate.rules.forward_method import RULE as FORWARD_METHOD
from accel_migrate.rules.global_batch import RULE as GLOBAL_BATCH
from accel_migrate.rules.gradient_clipping import RULE as GRADIENT_CLIPPING
from accel_migrate.rules.gradient_scaler import RULE as GRADIENT_SCALER
from accel_migrate.rules.hand_collective import RULE as HAND_COLLECTIVE
from accel_migrate.rules.host_value import RULE as HOST_VALUE
from accel_migrate.rules.kept_between_steps import RULE as KEPT_BETWEEN_STEPS
from accel_migrate.rules.local_decision import RULE as LOCAL_DECISION
from accel_migrate.rules.loop_left import RULE as LOOP_LEFT
from accel_migrate.rules.meaningless_code import RULE as MEANINGLESS_CODE
from accel_migrate.rules.model_attribute import RULE as MODEL_ATTRIBUTE
from accel_migrate.rules.model_copied import RULE as MODEL_COPIED
from accel_migrate.rules.model_exported import RULE as MODEL_EXPORTED
from accel_migrate.rules.model_on_some import RULE as MODEL_ON_SOME
from accel_migrate.rules.model_saved import RULE as MODEL_SAVED
from accel_migrate.rules.moves_kept import RULE as MOVES_KEPT
from accel_migrate.rules.not_visible import RULE as NOT_VISIBLE
from accel_migrate.rules.observed_fact import RULE as OBSERVED_FACT
from accel_migrate.rules.order_drawn import RULE as ORDER_DRAWN
from accel_migrate.rules.other_move import RULE as OTHER_MOVE
from accel_migrate.rules.parallel_model import RULE as PARALLEL_MODEL
from accel_migrate.rules.prepare_call import RULE as PREPARE_CALL
from accel_migrate.rules.print_call import RULE as PRINT_CALL
from accel_migrate.rules.process_group import RULE as PROCESS_GROUP
from accel_migrate.rules.process_rank import RULE as PROCESS_RANK
from accel_migrate.rules.progress_bar import RULE as PROGRESS_BAR
from accel_migrate.rules.same_noise import RULE as SAME_NOISE
from accel_migrate.rules.samples_logged import RULE as SAMPLES_LOGGED
from accel_migrate.rules.scaler_state import RULE as SCALER_STATE
from accel_migrate.rules.spawned_function import RULE as SPAWNED_FUNCTION
from accel_migrate.rules.summed_loss import RULE as SUMMED_LOSS
from accel_migrate.rules.training_average import RULE as TRAINING_AVERAGE
from accel_migrate.rules.unseen_helper import RULE as UNSEEN_HELPER
from accel_migrate.rules.unused_import import RULE as UNUSED_IMPORT
from accel_migrate.rules.unusual_loader import RULE as UNUSUAL_LOADER
from accel_migrate.rules.weights_drawn import RULE as WEIGHTS_DRAWN
from accel_migrate.rules.weights_loaded import RULE as WEIGHTS_LOADED

RULES: tuple[Rule, ...] = (
    ACCELERATOR_MADE,
    PREPARE_CALL,
    ACCELERATOR_PARAMETER,
    UNUSED_IMPORT,
    MODEL_ATTRIBUTE,
    FORWARD_METHOD,
    MEANINGLESS_CODE,
    DEVICE_MOVE,
    OTHER_MOVE,
    CUDA_ONLY,
    HOST_VALUE,
    MOVES_KEPT,
    BACKWARD_CALL,
    GRADIENT_CLIPPING,
    AUTOCAST_REGION,
    GRADIENT_SCALER,
    SCALER_STATE,
    ACCUMULATION_BY_HAND,
    EVALUATION_GATHER,
    EVALUATION_WHOLE,
    MODEL_ON_SOME,
    EVALUATION_SUMMED,
    MODEL_SAVED,
    WEIGHTS_LOADED,
    MODEL_COPIED,
    FILE_WRITTEN,
    FOLDER_MADE,
    MODEL_EXPORTED,
    PRINT_CALL,
    PROGRESS_BAR,
    EXPERIMENT_LOGGED,
    DATASET_DOWNLOADED,
    TRAINING_AVERAGE,
    SAMPLES_LOGGED,
    UNSEEN_HELPER,
    PROCESS_GROUP,
    PARALLEL_MODEL,
    DISTRIBUTED_SAMPLER,
    PROCESS_RANK,
    HAND_COLLECTIVE,
    SPAWNED_FUNCTION,
    GLOBAL_BATCH,
    SUMMED_LOSS,
    SAME_NOISE,
    BATCH_STATISTICS,
    DATA_NOT_SHARED,
    LOCAL_DECISION,
    UNUSUAL_LOADER,
    ORDER_DRAWN,
    WEIGHTS_DRAWN,
    KEPT_BETWEEN_STEPS,
    NOT_VISIBLE,
    OBSERVED_FACT,
    LOOP_LEFT,
)

BY_CODE = {rule.code: rule for rule in RULES}
