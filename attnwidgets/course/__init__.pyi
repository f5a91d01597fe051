# The public names of aw.course, each loaded on first use.

from .errors import AnswerError as AnswerError
from .grading.class_table import grade_class as grade_class
from .grading.grade import grade as grade
from .grading.grade import read_key as read_key
from .grading.grade import write_key as write_key
from .grading.rules import any_of as any_of
from .grading.rules import exact as exact
from .grading.rules import kendall as kendall
from .grading.rules import near as near
from .grading.rules import overlap as overlap
from .grading.rules import rubric as rubric
from .handouts.handout import handout as handout
from .handouts.keys import key_of as key_of
from .handouts.keys import order_of as order_of
from .handouts.keys import to_nbgrader as to_nbgrader
from .handouts.keys import to_otter as to_otter
from .reading.read_answers import read_answers as read_answers
from .records import decode as decode
from .records import make_record as make_record
from .records import receipt as receipt
from .records import subject_of as subject_of
