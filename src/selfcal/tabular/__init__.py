"""Tables before they are numbers: reading, cells, columns, targets, copies of rows, splits and preprocessing."""
