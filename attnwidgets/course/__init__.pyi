# The public names of aw.course, each loaded on first use.

from .errors import AnswerError as AnswerError
from .grading.class_table import grade_class as grade_class
from .grading.grade import grade as grade
from .grading.key_file import read_key as read_key
from .grading.key_file import write_key as write_key
from .grading.rules import any_of as any_of
from .grading.rules import exact as exact
from .grading.rules import kendall as kendall
from .grading.rules import near as near
from .grading.rules import overlap as overlap
from .grading.rules import rubric as rubric
from .handouts.graders import to_nbgrader as to_nbgrader
from .handouts.graders import to_otter as to_otter
from .handouts.handout import handout as handout
from .handouts.keys import key_of as key_of
from .handouts.keys import order_of as order_of
from .reading.read_answers import read_answers as read_answers
from .receipts import decode as decode
from .receipts import receipt as receipt
from .records import make_record as make_record
from .records import subject_of as subject_of
