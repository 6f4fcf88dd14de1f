"""Visual question answering: questions and human answers, vocabularies, soft targets, features of images."""

from contextual_dropout_lab.data.vqa.answers import (
    ANSWER_TYPES,
    AnswerType,
    Prepare,
    Score,
    answer_accuracy,
    answer_type,
    any_match,
    capped,
    evaluated,
    leave_one_out,
    normalize_answer,
    normalized,
)
from contextual_dropout_lab.data.vqa.daquar import daquar
from contextual_dropout_lab.data.vqa.easy_vqa import easy_vqa
from contextual_dropout_lab.data.vqa.glove import WordVectors, read_vectors
from contextual_dropout_lab.data.vqa.hdf5 import Hdf5Features
from contextual_dropout_lab.data.vqa.patches import patches
from contextual_dropout_lab.data.vqa.question_files import Question, Questions, read_questions, vqa_v2, vqa_v2_subset
from contextual_dropout_lab.data.vqa.region_features import NpzFeatures, Regions, pad_regions, read_regions
from contextual_dropout_lab.data.vqa.targets import SoftTargets, soft_targets
from contextual_dropout_lab.data.vqa.visual import VisualQuestions
from contextual_dropout_lab.data.vqa.vocabulary import AnswerVocabulary, build_answers, mcan_answers, read_answers
from contextual_dropout_lab.data.vqa.words import WordVocabulary, build_words, tokenize

__all__ = [
    "ANSWER_TYPES",
    "AnswerType",
    "AnswerVocabulary",
    "Hdf5Features",
    "NpzFeatures",
    "Prepare",
    "Question",
    "Questions",
    "Regions",
    "Score",
    "SoftTargets",
    "VisualQuestions",
    "WordVectors",
    "WordVocabulary",
    "answer_accuracy",
    "answer_type",
    "any_match",
    "build_answers",
    "build_words",
    "capped",
    "daquar",
    "easy_vqa",
    "evaluated",
    "leave_one_out",
    "mcan_answers",
    "normalize_answer",
    "normalized",
    "pad_regions",
    "patches",
    "read_answers",
    "read_questions",
    "read_regions",
    "read_vectors",
    "soft_targets",
    "tokenize",
    "vqa_v2",
    "vqa_v2_subset",
]
